# Serializers and compressors of Rails' cache stores on one value, as one line of JSON each.
#
# Arguments: FILE with the value as JSON, SECONDS for each measurement.
require "json"
require "zlib"
require "active_support"
require "active_support/cache"
require "msgpack"

value = JSON.parse(File.read(ARGV[0]))
seconds = Float(ARGV[1])

def rate(seconds)
  count = 0
  begun = Process.clock_gettime(Process::CLOCK_MONOTONIC)
  loop do
    yield
    count += 1
    took = Process.clock_gettime(Process::CLOCK_MONOTONIC) - begun
    return count / took if took >= seconds
  end
end

serializers = {
  "Marshal" => [->(one) { Marshal.dump(one) }, ->(bytes) { Marshal.load(bytes) }],
  "MessagePack" => [->(one) { MessagePack.pack(one) }, ->(bytes) { MessagePack.unpack(bytes) }],
  "JSON" => [->(one) { JSON.generate(one) }, ->(bytes) { JSON.parse(bytes) }],
}
compressors = {
  "none" => [->(bytes) { bytes }, ->(bytes) { bytes }],
  "gzip" => [->(bytes) { Zlib::Deflate.deflate(bytes) }, ->(bytes) { Zlib::Inflate.inflate(bytes) }],
}

serializers.each do |serializer, (dump, load)|
  compressors.each do |compressor, (deflate, inflate)|
    bytes = deflate.(dump.(value))
    raise "#{serializer} does not return the value" unless load.(inflate.(bytes)) == value
    puts JSON.generate(
      serializer: serializer, compressor: compressor, bytes: bytes.bytesize,
      write: rate(seconds) { deflate.(dump.(value)) },
      read: rate(seconds) { load.(inflate.(bytes)) },
    )
  end
end

# The store as an application calls it: Marshal, and zlib from 1 KiB on.
store = ActiveSupport::Cache::MemoryStore.new(size: 256 << 20)
store.write("value", value)
entry = store.send(:read_entry, "value")
puts JSON.generate(
  serializer: "MemoryStore", compressor: "default", bytes: entry.bytesize,
  write: rate(seconds) { store.write("value", value) },
  read: rate(seconds) { store.read("value") },
)
puts JSON.generate(
  version: "Ruby #{RUBY_VERSION}, ActiveSupport #{ActiveSupport::VERSION::STRING}, " \
           "MessagePack #{MessagePack::VERSION}",
)
