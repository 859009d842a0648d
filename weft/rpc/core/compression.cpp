#include <weft/rpc/core/compression.hpp>

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <new>
#include <optional>

#include <brotli/decode.h>
#include <brotli/encode.h>
#include <zlib.h>
#include <zstd.h>
#include <zstd_errors.h>

namespace weft::rpc {
namespace {

// A call waits for its compression, so speed counts more than the last percent.
constexpr int zstd_level = 1;
constexpr int gzip_level = 1;
constexpr int brotli_quality = 1;
constexpr int brotli_window = 18;     // 256 KiB: what a quality of 1 makes use of
constexpr int gzip_window = 15 + 16;  // zlib: largest window, gzip framing
constexpr int gzip_memory = 8;        // zlib's default
// RFC 8878 §3.1.1.1.2 asks decoders to support windows of 8 MiB; larger ones are a peer's way to
// make us allocate.
constexpr int zstd_largest_window = 23;
// Contexts are kept for the thread's next message, unless one message made them large.
constexpr std::size_t kept_context = std::size_t{2} << 20;
constexpr std::size_t smallest_output = 1024;

std::unexpected<status> not_compressed(compression algorithm, std::string_view why) {
  return fail(code::internal,
              "the message is not " + std::string{to_string(algorithm)} + ": " + std::string{why});
}

std::unexpected<status> over_limit(std::size_t limit) {
  return fail(code::resource_exhausted,
              "the message is larger than " + std::to_string(limit) + " bytes once decompressed");
}

slice fit(buffer&& whole, std::size_t used) {
  // A small result must not hold on to a large block for as long as it lives.
  if (used < whole.size() / 4) return slice::copy(bytes{whole.data(), used});
  whole.truncate(used);
  return std::move(whole).freeze();
}

/// What one step of a decoder did.
struct progress {
  std::size_t consumed = 0;
  std::size_t produced = 0;
  bool ended = false;
};

// gzip
// ----------------------------------------------------------------------------------------------

class gzip_encoder {
 public:
  gzip_encoder() {
    if (deflateInit2(&stream_, gzip_level, Z_DEFLATED, gzip_window, gzip_memory,
                     Z_DEFAULT_STRATEGY) != Z_OK)
      throw std::bad_alloc{};
  }
  gzip_encoder(const gzip_encoder&) = delete;
  gzip_encoder& operator=(const gzip_encoder&) = delete;
  ~gzip_encoder() { deflateEnd(&stream_); }

  result<slice> compress(bytes message) {
    deflateReset(&stream_);
    buffer out = buffer::allocate(deflateBound(&stream_, message.size()));
    if (message.size() > UINT32_MAX || out.size() > UINT32_MAX)
      return fail(code::resource_exhausted, "a message beyond 4 GiB cannot be compressed");
    stream_.next_in = reinterpret_cast<Bytef*>(const_cast<std::byte*>(message.data()));
    stream_.avail_in = static_cast<uInt>(message.size());
    stream_.next_out = reinterpret_cast<Bytef*>(out.data());
    stream_.avail_out = static_cast<uInt>(out.size());
    if (deflate(&stream_, Z_FINISH) != Z_STREAM_END)
      return fail(code::internal, "gzip compression failed");
    return fit(std::move(out), out.size() - stream_.avail_out);
  }

 private:
  z_stream stream_{};
};

class gzip_decoder {
 public:
  static constexpr auto algorithm = compression::gzip;

  gzip_decoder() {
    if (inflateInit2(&stream_, gzip_window) != Z_OK) throw std::bad_alloc{};
  }
  gzip_decoder(const gzip_decoder&) = delete;
  gzip_decoder& operator=(const gzip_decoder&) = delete;
  ~gzip_decoder() { inflateEnd(&stream_); }

  void begin() noexcept { inflateReset(&stream_); }
  /// More may follow an end: members make a file (RFC 1952 §2.2).
  bool again() noexcept { return inflateReset(&stream_) == Z_OK; }
  void end() noexcept {}
  std::optional<std::uint64_t> declared_size(bytes) const noexcept { return {}; }

  result<progress> step(bytes in, mutable_bytes out) {
    const auto in_size = std::min<std::size_t>(in.size(), UINT32_MAX);
    const auto out_size = std::min<std::size_t>(out.size(), UINT32_MAX);
    stream_.next_in = reinterpret_cast<Bytef*>(const_cast<std::byte*>(in.data()));
    stream_.avail_in = static_cast<uInt>(in_size);
    stream_.next_out = reinterpret_cast<Bytef*>(out.data());
    stream_.avail_out = static_cast<uInt>(out_size);
    const int outcome = inflate(&stream_, Z_NO_FLUSH);
    if (outcome != Z_OK && outcome != Z_STREAM_END && outcome != Z_BUF_ERROR)
      return not_compressed(algorithm, stream_.msg ? stream_.msg : "unexpected bytes");
    return progress{in_size - stream_.avail_in, out_size - stream_.avail_out,
                    outcome == Z_STREAM_END};
  }

 private:
  z_stream stream_{};
};

// zstd
// ----------------------------------------------------------------------------------------------

struct zstd_free {
  void operator()(ZSTD_CCtx* context) const noexcept { ZSTD_freeCCtx(context); }
  void operator()(ZSTD_DCtx* context) const noexcept { ZSTD_freeDCtx(context); }
};

class zstd_encoder {
 public:
  result<slice> compress(bytes message) {
    if (!context_) context_.reset(ZSTD_createCCtx());
    if (!context_) throw std::bad_alloc{};
    buffer out = buffer::allocate(ZSTD_compressBound(message.size()));
    const std::size_t written = ZSTD_compressCCtx(context_.get(), out.data(), out.size(),
                                                  message.data(), message.size(), zstd_level);
    if (ZSTD_sizeof_CCtx(context_.get()) > kept_context) context_.reset();
    if (ZSTD_isError(written))
      return fail(code::internal,
                  std::string{"zstd compression failed: "} + ZSTD_getErrorName(written));
    return fit(std::move(out), written);
  }

 private:
  std::unique_ptr<ZSTD_CCtx, zstd_free> context_;
};

class zstd_decoder {
 public:
  static constexpr auto algorithm = compression::zstd;

  void begin() {
    if (!context_) {
      context_.reset(ZSTD_createDCtx());
      if (!context_) throw std::bad_alloc{};
      ZSTD_DCtx_setParameter(context_.get(), ZSTD_d_windowLogMax, zstd_largest_window);
    }
    ZSTD_DCtx_reset(context_.get(), ZSTD_reset_session_only);
    begin_frame();
  }
  /// More may follow an end: frames make a file (RFC 8878 §3).
  bool again() const noexcept { return true; }
  void end() noexcept {
    if (ZSTD_sizeof_DCtx(context_.get()) > kept_context) context_.reset();
  }
  std::optional<std::uint64_t> declared_size(bytes start) const noexcept {
    if (!starts_frame(start.front())) return {};
    const auto size = ZSTD_getFrameContentSize(start.data(), start.size());
    if (size == ZSTD_CONTENTSIZE_UNKNOWN || size == ZSTD_CONTENTSIZE_ERROR) return {};
    return size;
  }

  result<progress> step(bytes in, mutable_bytes out) {
    if (head_size_ == 0 && !in.empty() && !starts_frame(in.front()))
      return not_compressed(algorithm, "it starts like no frame of RFC 8878");
    ZSTD_inBuffer source{in.data(), in.size(), 0};
    ZSTD_outBuffer target{out.data(), out.size(), 0};
    const std::size_t outcome = ZSTD_decompressStream(context_.get(), &target, &source);
    if (ZSTD_isError(outcome)) {
      if (ZSTD_getErrorCode(outcome) == ZSTD_error_frameParameter_windowTooLarge)
        return fail(code::resource_exhausted,
                    "decompressing the message needs a window of more than 8 MiB");
      return not_compressed(algorithm, ZSTD_getErrorName(outcome));
    }
    note(in.first(source.pos), target.pos);
    if (outcome == 0) {
      if (declared_size(bytes{head_}.first(head_size_)).value_or(produced_) != produced_)
        return not_compressed(algorithm, "a frame's content is not as long as it says");
      begin_frame();
    }
    return progress{source.pos, target.pos, outcome == 0};
  }

 private:
  /// By the first byte of the magic numbers of RFC 8878 §3.1: data, or to be skipped. The library
  /// also reads formats that came before the standard, with other decoders, which know no largest
  /// window.
  static bool starts_frame(std::byte first) noexcept {
    return first == std::byte{0x28} || (first & std::byte{0xf0}) == std::byte{0x50};
  }

  // The library compares declared and real size, too, but not where an empty block is the last
  // and the frame came in parts.
  void begin_frame() noexcept {
    head_size_ = 0;
    produced_ = 0;
  }
  void note(bytes consumed, std::size_t produced) noexcept {
    const bytes head = consumed.first(std::min(consumed.size(), head_.size() - head_size_));
    if (!head.empty()) std::memcpy(head_.data() + head_size_, head.data(), head.size());
    head_size_ += head.size();
    produced_ += produced;
  }

  std::unique_ptr<ZSTD_DCtx, zstd_free> context_;
  std::array<std::byte, 18> head_{};  // of the frame; RFC 8878 §3.1.1: at most magic and 14 bytes
  std::size_t head_size_ = 0;
  std::uint64_t produced_ = 0;  // of the frame
};

// brotli
// --------------------------------------------------------------------------------------------

// Brotli's decoder cannot be used again: it is made for each message. It takes memory as the stream
// earns it, up to the window it declares: 16 MiB at most, as RFC 7932 has it.
class brotli_decoder {
 public:
  static constexpr auto algorithm = compression::br;

  void begin() {
    state_.reset(BrotliDecoderCreateInstance(nullptr, nullptr, nullptr));
    if (!state_) throw std::bad_alloc{};
  }
  bool again() const noexcept { return false; }
  void end() noexcept { state_.reset(); }
  std::optional<std::uint64_t> declared_size(bytes) const noexcept { return {}; }

  result<progress> step(bytes in, mutable_bytes out) {
    std::size_t in_left = in.size();
    std::size_t out_left = out.size();
    const auto* next_in = reinterpret_cast<const std::uint8_t*>(in.data());
    auto* next_out = reinterpret_cast<std::uint8_t*>(out.data());
    const auto outcome = BrotliDecoderDecompressStream(state_.get(), &in_left, &next_in, &out_left,
                                                       &next_out, nullptr);
    if (outcome == BROTLI_DECODER_RESULT_ERROR)
      return not_compressed(algorithm,
                            BrotliDecoderErrorString(BrotliDecoderGetErrorCode(state_.get())));
    return progress{in.size() - in_left, out.size() - out_left,
                    outcome == BROTLI_DECODER_RESULT_SUCCESS};
  }

 private:
  struct destroy {
    void operator()(BrotliDecoderState* state) const noexcept {
      BrotliDecoderDestroyInstance(state);
    }
  };
  std::unique_ptr<BrotliDecoderState, destroy> state_;
};

result<slice> compress_brotli(bytes message) {
  buffer out =
      buffer::allocate(std::max(BrotliEncoderMaxCompressedSize(message.size()), smallest_output));
  std::size_t written = out.size();
  const auto* from = reinterpret_cast<const std::uint8_t*>(message.data());
  if (!BrotliEncoderCompress(brotli_quality, brotli_window, BROTLI_MODE_GENERIC, message.size(),
                             from, &written, reinterpret_cast<std::uint8_t*>(out.data())))
    return fail(code::internal, "brotli compression failed");
  return fit(std::move(out), written);
}

// All
// ----------------------------------------------------------------------------------------------

/// Pooled memory that doubles as it fills, up to a limit: what a message only claims to need is not
/// allocated.
class growing_output {
 public:
  growing_output(std::size_t first, std::size_t limit)
      : memory_{buffer::allocate(std::min(first, limit))}, limit_{limit} {}

  /// Room for more; empty when the limit is reached.
  mutable_bytes room() {
    if (used_ == memory_.size() && used_ < limit_) {
      const std::size_t wanted =
          memory_.size() > limit_ / 2 ? limit_ : std::max(memory_.size() * 2, smallest_output);
      buffer larger = buffer::allocate(std::min(wanted, limit_));
      if (used_ != 0) std::memcpy(larger.data(), memory_.data(), used_);
      memory_ = std::move(larger);
    }
    return memory_.span().subspan(used_);
  }
  void commit(std::size_t count) noexcept { used_ += count; }
  slice take() && { return used_ == 0 ? slice{} : fit(std::move(memory_), used_); }

 private:
  buffer memory_;
  std::size_t used_ = 0;
  std::size_t limit_;
};

template <class Decoder>
result<slice> run(Decoder& decoder, const payload& message, std::size_t limit) {
  const auto declared = decoder.declared_size(message.part(0));
  if (declared && *declared > limit) return over_limit(limit);
  // A believable claim is met by one allocation: beyond 64 times the input it has to be earned.
  const std::size_t estimate =
      declared ? std::min<std::size_t>(*declared, 64 * message.size()) : 4 * message.size();
  growing_output output{std::max(estimate, smallest_output), limit};
  bool ended = false;
  for (std::size_t i = 0; i < message.parts(); ++i) {
    bytes in = message.part(i);
    // Goes on after the last byte of input: what the decoder holds back may need more room.
    for (bool more = true; more;) {
      if (ended && (in.empty() || !decoder.again())) break;
      std::byte beyond{};  // shows whether a message that fills the limit ends there
      const mutable_bytes room = output.room();
      auto step = decoder.step(in, room.empty() ? mutable_bytes{&beyond, 1} : room);
      if (!step) return std::unexpected{std::move(step).error()};
      if (room.empty() && step->produced != 0) return over_limit(limit);
      output.commit(step->produced);
      in = in.subspan(step->consumed);
      ended = step->ended;
      more = step->consumed != 0 || step->produced != 0;
    }
    if (!in.empty())
      return not_compressed(Decoder::algorithm,
                            ended ? "bytes follow its end" : "the decoder makes no progress");
  }
  if (!ended) return not_compressed(Decoder::algorithm, "it is cut short");
  return std::move(output).take();
}

template <class Decoder>
result<slice> decompress_with(const payload& message, std::size_t limit) {
  thread_local Decoder decoder;
  decoder.begin();
  auto plain = run(decoder, message, limit);
  decoder.end();
  return plain;
}

}  // namespace

std::string_view to_string(compression algorithm) noexcept {
  switch (algorithm) {
    case compression::identity:
      return "identity";
    case compression::gzip:
      return "gzip";
    case compression::zstd:
      return "zstd";
    case compression::br:
      return "br";
  }
  return "unknown";
}

std::optional<compression> compression_from_name(std::string_view name) noexcept {
  for (const auto each :
       {compression::identity, compression::gzip, compression::zstd, compression::br})
    if (name == to_string(each)) return each;
  return std::nullopt;
}

std::vector<compression> available_compressions() {
  return {compression::zstd, compression::gzip, compression::br};
}

result<slice> compress(compression algorithm, bytes message) {
  switch (algorithm) {
    case compression::identity:
      return slice::copy(message);
    case compression::gzip: {
      thread_local gzip_encoder encoder;
      return encoder.compress(message);
    }
    case compression::zstd: {
      thread_local zstd_encoder encoder;
      return encoder.compress(message);
    }
    case compression::br:
      return compress_brotli(message);
  }
  return fail(code::internal, "no such compression");
}

result<slice> decompress(compression algorithm, const payload& message, std::size_t limit) {
  if (message.empty()) return slice{};
  switch (algorithm) {
    case compression::identity:
      if (message.size() > limit) return over_limit(limit);
      return message.flatten();
    case compression::gzip:
      return decompress_with<gzip_decoder>(message, limit);
    case compression::zstd:
      return decompress_with<zstd_decoder>(message, limit);
    case compression::br:
      return decompress_with<brotli_decoder>(message, limit);
  }
  return fail(code::internal, "no such compression");
}

}  // namespace weft::rpc
