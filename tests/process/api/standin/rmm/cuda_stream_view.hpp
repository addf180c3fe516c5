#pragma once

typedef struct CUstream_st *cudaStream_t;
namespace rmm {
class cuda_stream_view {
  public:
    constexpr cuda_stream_view(cudaStream_t stream) noexcept : stream_(stream) {
    }
    constexpr cudaStream_t value() const noexcept {
        return stream_;
    }

  private:
    cudaStream_t stream_;
};
} // namespace rmm
