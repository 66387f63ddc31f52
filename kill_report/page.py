"""page"""
def write(path, rounds):
    pass
