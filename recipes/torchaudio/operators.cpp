// What the Python of torchaudio 2.11 asks for and the C++ of 2.6 has in another form.
#include <libtorchaudio/utils.h>
#include <torch/library.h>

namespace {

std::tuple<at::Tensor, at::Tensor> rnnt_loss_forward(const at::Tensor& logits, const at::Tensor& targets,
                                                     const at::Tensor& logit_lengths,
                                                     const at::Tensor& target_lengths, int64_t blank,
                                                     double clamp, bool fused_log_softmax) {
  using Loss = std::tuple<at::Tensor, std::optional<at::Tensor>>(
      at::Tensor&, const at::Tensor&, const at::Tensor&, const at::Tensor&, int64_t, double, bool);
  static const auto loss =
      c10::Dispatcher::singleton().findSchemaOrThrow("torchaudio::rnnt_loss", "").typed<Loss>();
  at::Tensor mutable_logits = logits;
  auto [costs, gradients] =
      loss.call(mutable_logits, targets, logit_lengths, target_lengths, blank, clamp, fused_log_softmax);
  return {costs, gradients.value()};
}

// 2.6 gives the scores along the path; here they are all, and the Python takes those along the path.
std::tuple<at::Tensor, at::Tensor> forced_align(const at::Tensor& log_probs, const at::Tensor& targets,
                                                const at::Tensor& input_lengths,
                                                const at::Tensor& target_lengths, int64_t blank) {
  static const auto align = c10::Dispatcher::singleton()
                                .findSchemaOrThrow("torchaudio::forced_align_2_6", "")
                                .typed<decltype(forced_align)>();
  return {std::get<0>(align.call(log_probs, targets, input_lengths, target_lengths, blank)),
          log_probs.clone()};
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(torchaudio, m) {
  m.def(
      "forced_align(Tensor log_probs, Tensor targets, Tensor input_lengths, Tensor target_lengths, "
      "int blank) -> (Tensor, Tensor)");
  m.def(
      "forced_align_2_6(Tensor log_probs, Tensor targets, Tensor input_lengths, Tensor target_lengths, "
      "int blank) -> (Tensor, Tensor)");
  m.def(
      "rnnt_loss_forward(Tensor logits, Tensor targets, Tensor logit_lengths, Tensor target_lengths, "
      "int blank, float clamp, bool fused_log_softmax) -> (Tensor, Tensor)");
}

TORCH_LIBRARY_IMPL(torchaudio, CPU, m) {
  m.impl("forced_align", &forced_align);
  m.impl("rnnt_loss_forward", &rnnt_loss_forward);
}

TORCH_LIBRARY(_torchaudio, m) {
  m.def("is_align_available", &torchaudio::is_align_available);
  m.def("cuda_version", &torchaudio::cuda_version);
}
