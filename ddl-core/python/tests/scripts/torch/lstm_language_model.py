"""A language model of 2018: embeddings with sparse gradients, hidden state from batch to batch, clipping."""

import math

import digits
import horovod.torch as hvd
import numpy as np
import torch
import torch.nn as nn

BPTT, SENTENCES, NTOKEN = 8, 16, 80


class RNNModel(nn.Module):
    """An encoder, a recurrent module, and a decoder."""

    def __init__(self, ntoken, ninp, nhid, nlayers):
        super().__init__()
        self.encoder = nn.Embedding(ntoken, ninp, sparse=True)
        self.rnn = nn.LSTM(ninp, nhid, nlayers)
        self.decoder = nn.Linear(nhid, ntoken)
        self.nlayers, self.nhid = nlayers, nhid
        self.init_weights()

    def init_weights(self):
        initrange = 0.1
        self.encoder.weight.data.uniform_(-initrange, initrange)
        self.decoder.bias.data.zero_()
        self.decoder.weight.data.uniform_(-initrange, initrange)

    def forward(self, input, hidden):
        output, hidden = self.rnn(self.encoder(input), hidden)
        decoded = self.decoder(output.view(output.size(0) * output.size(1), output.size(2)))
        return decoded.view(output.size(0), output.size(1), decoded.size(1)), hidden

    def init_hidden(self, bsz):
        weight = next(self.parameters())
        return tuple(weight.new_zeros(self.nlayers, bsz, self.nhid) for _ in range(2))


def repackage_hidden(h):
    """Detach hidden states from their history."""
    return h.detach() if isinstance(h, torch.Tensor) else tuple(repackage_hidden(v) for v in h)


def batchify(data, bsz):
    nbatch = data.size(0) // bsz
    return data.narrow(0, 0, nbatch * bsz).view(bsz, -1).t().contiguous()


def get_batch(source, i):
    return source[i : i + BPTT], source[i + 1 : i + 1 + BPTT].reshape(-1)


hvd.init()
torch.manual_seed(1111 + hvd.rank())
# the brightness of the pixels as text; each rank has its columns
images, _ = digits.load()
text = torch.from_numpy(np.rint(images[: SENTENCES * 12] * 16).astype(np.int64).reshape(-1))
mine = slice(hvd.rank() * SENTENCES // hvd.size(), (hvd.rank() + 1) * SENTENCES // hvd.size())
train_data = batchify(text, SENTENCES)[:, mine]
model = RNNModel(NTOKEN, ninp=12, nhid=24, nlayers=2)
criterion = nn.CrossEntropyLoss()
dense = [p for name, p in model.named_parameters() if name != "encoder.weight"]
optimizers = [
    torch.optim.SGD(dense, lr=1.0, momentum=0.5),
    torch.optim.SparseAdam(model.encoder.parameters(), lr=0.02, eps=1e-4),
]
names = {False: [], True: []}
for name, parameter in model.named_parameters():
    names[name == "encoder.weight"].append((name, parameter))
optimizers = [
    hvd.DistributedOptimizer(optimizer, named_parameters=names[sparse])
    for sparse, optimizer in zip(names, optimizers, strict=True)
]
hvd.broadcast_parameters(model.state_dict(), root_rank=0)

losses = []
hidden = model.init_hidden(train_data.size(1))
for i in range(0, BPTT * 50, BPTT):
    data, targets = get_batch(train_data, i)
    model.zero_grad()
    hidden = repackage_hidden(hidden)
    output, hidden = model(data, hidden)
    loss = criterion(output.view(-1, NTOKEN), targets)
    loss.backward()
    optimizers[0].synchronize()
    torch.nn.utils.clip_grad_norm_(dense, 0.5)
    with optimizers[0].skip_synchronize():
        optimizers[0].step()
    optimizers[1].step()
    losses.append(loss.item())
if hvd.rank() == 0:
    print(f"loss {losses[-1]:5.2f} | ppl {math.exp(losses[-1]):8.2f}")
digits.save(hvd.rank(), {name: value.numpy() for name, value in model.state_dict().items()}, losses)
