# frozen_string_literal: true

# Writes and reads JSON with the json gem of this Ruby, for comparisons: batches of questions on stdin, a line of answer
# for each on stdout.
#
#   generate <count>   then lines of tokens:             the JSON text, or `!` and the error
#   parse <count>      then lines of hexadecimal bytes:  the value's tokens, a tab, and its JSON text; or `!` and the error
#
# Tokens spell a value without any JSON: n t f; i and hexadecimal digits; d and the 16 digits of a double's bits; s and the
# bytes of a string; [ or { and how many items or pairs follow.
require "json"

module Tokens
  LITERALS = {"n" => nil, "t" => true, "f" => false}.freeze

  module_function

  def read(tokens)
    token = tokens.shift
    content = token[1..]
    case token[0]
    when "s" then [content].pack("H*").force_encoding(Encoding::UTF_8)
    when "d" then [content].pack("H*").unpack1("G")
    when "i" then content.to_i(16)
    when "[" then Array.new(content.to_i) { read(tokens) }
    when "{" then Array.new(content.to_i) { [read(tokens), read(tokens)] }.to_h
    else LITERALS.fetch(token)
    end
  end

  def write(value, tokens = [])
    case value
    when String then tokens << "s#{value.unpack1("H*")}"
    when Float then tokens << "d#{[value].pack("G").unpack1("H*")}"
    when Integer then tokens << "i#{value.to_s(16)}"
    when Array
      tokens << "[#{value.size}"
      value.each { |item| write(item, tokens) }
    when Hash
      tokens << "{#{value.size}"
      value.each { |key, item| write(item, write(key, tokens)) }
    else tokens << LITERALS.key(value)
    end
    tokens
  end
end

def attempt
  yield
rescue StandardError => error
  "!#{error.class}: #{error.message}".b.tr("\t\n", " ")
end

def answer(word, line)
  return attempt { JSON.generate(Tokens.read(line.split)) } if word == "generate"

  text = [line].pack("H*").force_encoding(Encoding::UTF_8)
  attempt do
    value = JSON.parse(text)
    "#{Tokens.write(value).join(" ")}\t".b + attempt { JSON.generate(value) }.b
  end
end

$stdin.binmode
$stdout.binmode
$stdout.write("#{JSON::VERSION}\n")
$stdout.flush
while (head = $stdin.gets)
  word, count = head.split
  lines = Array.new(count.to_i) { $stdin.gets.chomp }
  $stdout.write(lines.map { |line| "#{answer(word, line).b}\n" }.join)
  $stdout.flush
end
