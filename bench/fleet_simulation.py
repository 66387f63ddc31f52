def rows(*a):
    return []
