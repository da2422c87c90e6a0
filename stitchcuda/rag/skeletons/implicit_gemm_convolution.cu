// A convolution with bias and ReLU in one cuDNN call (implicit GEMM, fused epilogue), through cuDNN's frontend: fp16 in and out,
// channels-last, fp32 inside. x [n][h][w][c], weight [k][r][s][c], bias [k], y [n][h][w][k], with stride 1 and padding that keeps
// the size. Link with -lcudnn. The plan is made once for each shape and device and kept; a call is one `convolution_launch`.
// Offered from sm_80 for conv1d, conv2d, convolution, _convolution.
#include <cuda_runtime.h>
#include <cudnn_frontend.h>
#include <memory>
#include <unordered_map>
namespace fe = cudnn_frontend;
struct Convolution {
  cudnnHandle_t handle;
  fe::graph::Graph graph;
  std::shared_ptr<fe::graph::Tensor_attributes> x, weight, bias, y;
};
// Returns 0, or 1 where cuDNN has no such plan; *workspace_bytes is what a call needs.
extern "C" int plan_convolution(Convolution** made, int n, int h, int w, int c, int k, int r, int s, int64_t* workspace_bytes) {
  auto* plan = *made = new Convolution();
  if (cudnnCreate(&plan->handle)) return 1;
  auto& graph = plan->graph;
  graph.set_io_data_type(fe::DataType_t::HALF)
      .set_intermediate_data_type(fe::DataType_t::FLOAT)
      .set_compute_data_type(fe::DataType_t::FLOAT);
  const auto tensor = [&](int64_t a, int64_t b, int64_t d, int64_t e) {          // dimensions as n, c, h, w; strides channels-last
    return graph.tensor(fe::graph::Tensor_attributes().set_dim({a, b, d, e}).set_stride({b * d * e, 1, b * e, b}));
  };
  plan->x = tensor(n, c, h, w);
  plan->weight = tensor(k, c, r, s);
  plan->bias = tensor(1, k, 1, 1);
  auto options = fe::graph::Conv_fprop_attributes().set_padding({r / 2, s / 2}).set_stride({1, 1}).set_dilation({1, 1});
  auto product = graph.conv_fprop(plan->x, plan->weight, options);
  auto sum = graph.pointwise(product, plan->bias, fe::graph::Pointwise_attributes().set_mode(fe::PointwiseMode_t::ADD));
  plan->y = graph.pointwise(sum, fe::graph::Pointwise_attributes().set_mode(fe::PointwiseMode_t::RELU_FWD));
  plan->y->set_output(true);
  if (graph.build(plan->handle, {fe::HeurMode_t::A}).is_bad()) return 1;
  *workspace_bytes = graph.get_workspace_size();
  return 0;
}
extern "C" int convolution_launch(Convolution* plan, void* x, void* weight, void* bias, void* y, void* workspace,
                                  cudaStream_t stream) {
  if (cudnnSetStream(plan->handle, stream)) return 1;
  std::unordered_map<std::shared_ptr<fe::graph::Tensor_attributes>, void*> tensors = {
      {plan->x, x}, {plan->weight, weight}, {plan->bias, bias}, {plan->y, y}};
  return plan->graph.execute(plan->handle, tensors, workspace).is_bad();
}
