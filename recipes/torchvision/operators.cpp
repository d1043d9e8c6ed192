// Operators that the Python of torchvision 0.28 calls and the C++ of 0.21 does not have: two that take
// quantized tensors as integers with their scales, and the overlap of rotated boxes.
#include <ATen/ATen.h>
#include <torch/library.h>

#include <array>
#include <cmath>
#include <vector>

#include "ops/nms.h"
#include "ops/roi_align.h"

namespace {

// Boxes of one scale and zero point: which of them overlap too much depends on neither.
at::Tensor qnms(const at::Tensor& boxes, const at::Tensor& scores, double iou_threshold) {
  return vision::ops::nms(at::_make_per_tensor_quantized_tensor(boxes, 1.0, 0),
                          at::_make_per_tensor_quantized_tensor(scores, 1.0, 0), iou_threshold);
}

at::Tensor qroi_align(const at::Tensor& input, const at::Tensor& rois, double input_scale,
                      int64_t input_zero_point, double rois_scale, int64_t rois_zero_point,
                      double spatial_scale, int64_t pooled_height, int64_t pooled_width,
                      int64_t sampling_ratio, bool aligned) {
  return vision::ops::roi_align(at::_make_per_tensor_quantized_tensor(input, input_scale, input_zero_point),
                                at::_make_per_tensor_quantized_tensor(rois, rois_scale, rois_zero_point),
                                spatial_scale, pooled_height, pooled_width, sampling_ratio, aligned)
      .int_repr();
}

using Point = std::array<double, 2>;
using Polygon = std::vector<Point>;

// The part of a convex polygon whose coordinate `axis`, times `sign`, is at most `limit`.
Polygon cut(const Polygon& polygon, int axis, double sign, double limit) {
  Polygon kept;
  for (size_t i = 0; i < polygon.size(); ++i) {
    const Point& from = polygon[i];
    const Point& to = polygon[(i + 1) % polygon.size()];
    const double before = limit - sign * from[axis];
    const double after = limit - sign * to[axis];
    if (before >= 0) {
      kept.push_back(from);
    }
    if ((before > 0 && after < 0) || (before < 0 && after > 0)) {
      const double part = before / (before - after);
      kept.push_back({from[0] + part * (to[0] - from[0]), from[1] + part * (to[1] - from[1])});
    }
  }
  return kept;
}

double area(const Polygon& polygon) {
  double twice = 0;
  for (size_t i = 0; i < polygon.size(); ++i) {
    const Point& from = polygon[i];
    const Point& to = polygon[(i + 1) % polygon.size()];
    twice += from[0] * to[1] - from[1] * to[0];
  }
  return std::abs(twice) / 2;
}

// Boxes are a centre, width, height, and an angle in degrees: counter-clockwise where y points down.
double overlap(const double* one, const double* other) {
  const double sizes = one[2] * one[3];
  const double others = other[2] * other[3];
  if (sizes <= 0 || others <= 0) {
    return 0;
  }
  // the first one's corners as seen from the other, whose sides are parallel to the axes then
  const double turn = other[4] * M_PI / 180;
  const double angle = (one[4] - other[4]) * M_PI / 180;
  const double x = one[0] - other[0];
  const double y = one[1] - other[1];
  const double right = std::cos(turn) * x - std::sin(turn) * y;
  const double down = std::sin(turn) * x + std::cos(turn) * y;
  Polygon shared;
  for (const auto& [h, v] : {Point{-0.5, -0.5}, Point{0.5, -0.5}, Point{0.5, 0.5}, Point{-0.5, 0.5}}) {
    const double w = h * one[2];
    const double t = v * one[3];
    shared.push_back({right + std::cos(angle) * w + std::sin(angle) * t,
                      down - std::sin(angle) * w + std::cos(angle) * t});
  }
  for (const int axis : {0, 1}) {
    for (const double sign : {-1.0, 1.0}) {
      shared = cut(shared, axis, sign, other[2 + axis] / 2);
    }
  }
  const double both = area(shared);
  return both / (sizes + others - both);
}

// In float32 for float64, too, as that of 0.28.
at::Tensor box_iou_rotated(const at::Tensor& boxes1, const at::Tensor& boxes2) {
  TORCH_CHECK(boxes1.dim() == 2 && boxes1.size(1) == 5, "boxes1 should have shape (N, 5), got ",
              boxes1.sizes());
  TORCH_CHECK(boxes2.dim() == 2 && boxes2.size(1) == 5, "boxes2 should have shape (M, 5), got ",
              boxes2.sizes());
  TORCH_CHECK_TYPE(boxes1.scalar_type() == boxes2.scalar_type() &&
                       (boxes1.scalar_type() == at::kFloat || boxes1.scalar_type() == at::kDouble),
                   "boxes1 and boxes2 should both be float32 or float64, got ", boxes1.scalar_type(), " and ",
                   boxes2.scalar_type());
  const at::Tensor ones = boxes1.to(at::kDouble).contiguous();
  const at::Tensor others = boxes2.to(at::kDouble).contiguous();
  at::Tensor result = at::empty({ones.size(0), others.size(0)}, ones.options().dtype(at::kFloat));
  float* next = result.data_ptr<float>();
  for (int64_t i = 0; i < ones.size(0); ++i) {
    for (int64_t j = 0; j < others.size(0); ++j) {
      *next++ = static_cast<float>(
          overlap(ones.const_data_ptr<double>() + 5 * i, others.const_data_ptr<double>() + 5 * j));
    }
  }
  return result;
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(torchvision, m) {
  m.def("qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor");
  m.def(
      "qroi_align(Tensor input, Tensor rois, float input_scale, int input_zero_point, float rois_scale, "
      "int rois_zero_point, float spatial_scale, SymInt pooled_height, SymInt pooled_width, int "
      "sampling_ratio, "
      "bool aligned) -> Tensor");
  m.def("box_iou_rotated(Tensor boxes1, Tensor boxes2) -> Tensor");
}

TORCH_LIBRARY_IMPL(torchvision, CPU, m) {
  m.impl("qnms", &qnms);
  m.impl("qroi_align", &qroi_align);
  m.impl("box_iou_rotated", &box_iou_rotated);
}
