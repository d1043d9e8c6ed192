// The graph operators: their names, attributes and shapes. The names are those of the original DDL, so that
// its graphs and scripts find them.
#include "absl/status/status.h"
#include "tensorflow/core/framework/common_shape_fns.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/shape_inference.h"

namespace {

using tensorflow::shape_inference::InferenceContext;
using tensorflow::shape_inference::ShapeHandle;

absl::Status SameShapes(InferenceContext* c) {
  for (int i = 0; i < c->num_inputs(); ++i) c->set_output(i, c->input(i));
  return absl::OkStatus();
}

absl::Status InitShapes(InferenceContext* c) {
  ShapeHandle scalar;
  if (absl::Status status = c->WithRank(c->input(0), 0, &scalar); !status.ok()) return status;
  for (int i = 0; i < c->num_outputs(); ++i) c->set_output(i, c->Scalar());
  return absl::OkStatus();
}

}  // namespace

// All are stateful: they act on other processes, so no optimizer may drop, merge, fold or repeat them, and
// tf.function keeps them in program order.

REGISTER_OP("Init")
    .Input("user_gpuid: int32")
    .Output("rank: int32")
    .Output("size: int32")
    .Output("local_rank: int32")
    .Output("local_size: int32")
    .Output("local_gpuid: int32")
    .Attr("mode: string = ''")
    .Attr("pci: bool = true")
    .SetIsStateful()
    .SetShapeFn(InitShapes)
    .Doc(R"doc(
Initialises DDL, where that has not happened yet, and says which rank this process is.

user_gpuid: scalar; the accelerator this process is to use, or -1 for the one that ddlrun gave it, else the one of its local rank.
rank: scalar, 0 ... size-1.
size: scalar, number of ranks.
local_rank: scalar, rank among those of the same host.
local_size: scalar, number of ranks on the same host.
local_gpuid: scalar, the accelerator of this process.
mode: as after -mode in DDL_OPTIONS, for example "p:2x2", or all options, "-mode p:2x2 -timeout 60"; empty
takes DDL_OPTIONS.
pci: accelerators are numbered in the order of their PCI addresses, not fastest first.
)doc");

REGISTER_OP("Bcast")
    .Input("tensor: T")
    .Output("output: T")
    .Attr("T: {float, half, double, bfloat16, int32, int64}")
    .Attr("root: int >= 0 = 0")
    .Attr("tensor_name: string = ''")
    .SetIsStateful()
    .SetShapeFn(SameShapes)
    .Doc(R"doc(
Gives every rank the tensor of rank `root`.

tensor: the same shape and type on all ranks.
output: the root's tensor.
tensor_name: compared across the ranks, by default the name of the operator; a difference is an error on all of them.
)doc");

REGISTER_OP("AllReduce")
    .Input("tensor: T")
    .Output("output: T")
    .Attr("T: {float, half, double, bfloat16, int32, int64}")
    .Attr("op: {'sum', 'avg', 'min', 'max', 'product'} = 'sum'")
    .Attr("mpi: bool = false")
    .Attr("check: float = 0.0")
    .Attr("tensor_name: string = ''")
    .SetIsStateful()
    .SetShapeFn(SameShapes)
    .Doc(R"doc(
Reduces a tensor over all ranks, element by element.

tensor: the same shape and type on all ranks.
output: the result, bitwise the same on all ranks.
mpi: use the MPI library's own MPI_Allreduce, the baseline to compare with.
check: when positive, reduce by MPI_Allreduce too and report on standard error the elements whose difference
  exceeds check * max(1, |MPI's result|).
tensor_name: compared across the ranks, by default the name of the operator; a difference is an error on all of them.
  Not compared where mpi is set.
)doc");

REGISTER_OP("AllReduceN")
    .Input("tensors: N * T")
    .Output("outputs: N * T")
    .Attr("N: int >= 1")
    .Attr("T: {float, half, double, bfloat16, int32, int64}")
    .Attr("op: {'sum', 'avg', 'min', 'max', 'product'} = 'sum'")
    .Attr("mpi: bool = false")
    .Attr("check: float = 0.0")
    .Attr("tensor_name: string = ''")
    .SetIsStateful()
    .SetShapeFn(SameShapes)
    .Doc(R"doc(
Reduces N tensors over all ranks in one grouped operation, as if they were one.

tensors: each with the same shape on all ranks.
outputs: the results, bitwise the same on all ranks.
mpi: as in AllReduce, tensor by tensor.
check: as in AllReduce.
tensor_name: as in AllReduce, one name for the group.
)doc");
