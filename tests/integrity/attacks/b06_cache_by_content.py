# row: B6
# reference: clocks/linear_gelu_large.py
# runs: gpu
# written: independently
# what: a checksum kernel reads the whole input (8 bytes of hash, order included) and a product already computed for the same contents is copied out: always right, at any address, but repeated contents skip the matrix product
# base: tiled_linear_gelu.py

CUDA = KERNEL + CURRENT + RUN + r"""
__global__ void checksum_kernel(const unsigned* x, unsigned long long* out, long long n) {
  unsigned long long h = 0;
  for (long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x; i < n; i += (long long)gridDim.x * blockDim.x) {
    unsigned long long v = (x[i] + 0x9e3779b97f4a7c15ULL) ^ ((unsigned long long)i * 0xd6e8feb86659fd93ULL);
    v ^= v >> 32; v *= 0xd6e8feb86659fd93ULL; v ^= v >> 29;
    h += v;
  }
  atomicAdd(out, h);
}
void checksum(tvm::ffi::TensorView x, tvm::ffi::TensorView out) {
  checksum_kernel<<<264, 256, 0, current(x)>>>((const unsigned*)x.data_ptr(), (unsigned long long*)out.data_ptr(), (long long)x.size(0) * x.size(1));
}
"""
module = load_inline("b06_cache_by_content", cuda_sources=CUDA, functions=['run', 'checksum'])
cache = {}

class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        digest = torch.zeros(1, dtype=torch.int64, device=x.device)
        module.checksum(x, digest)
        key = (tuple(x.shape), digest.item())
        if key not in cache:
            if len(cache) > 32:
                cache.clear()
            cache[key] = compute(self, x)
        return cache[key].clone()
