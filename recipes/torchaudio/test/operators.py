"""Compares torchaudio's operators with their definitions, and uses its transforms and models."""

import itertools
import math

import numpy as np
import torch
import torchaudio
from scipy import signal
from torchaudio import functional as F
from torchaudio import models, transforms

rng = np.random.default_rng(0)


def test_filters():
    wave = rng.standard_normal((2, 3, 200))
    poles, zeros = (
        np.array([[1.0, -0.5, 0.2], [2.0, 0.3, -0.1], [1.0, 0.0, 0.4]]),
        rng.standard_normal((3, 3)),
    )
    for kind, most in ((torch.float64, 1e-10), (torch.float32, 1e-4)):
        given = [torch.from_numpy(one).to(kind) for one in (wave, poles, zeros)]
        found = F.lfilter(*given, clamp=False)
        for channel in range(3):
            expected = signal.lfilter(zeros[channel], poles[channel], wave[:, channel])
            assert np.abs(found[:, channel].numpy() - expected).max() < most
    variables = [torch.from_numpy(one).requires_grad_() for one in (wave[:, :, :9], poles, zeros)]
    assert torch.autograd.gradcheck(lambda *v: F.lfilter(*v, clamp=False), variables)
    low = F.lowpass_biquad(torch.from_numpy(np.sin(np.arange(8000) * 2 * math.pi * 3000 / 8000)), 8000, 200)
    assert low[4000:].abs().max() < 0.02


def test_overdrive():
    wave = rng.uniform(-0.9, 0.9, (2, 50))
    gain, colour = 10 ** (20 / 20), 20 / 200
    shaped = np.clip(wave * gain + colour, -1, 1)
    shaped = np.where(np.abs(wave * gain + colour) < 1, shaped - shaped**3 / 3, np.sign(shaped) * 2 / 3)
    expected, last_in, last_out = np.zeros_like(wave), np.zeros(2), np.zeros(2)
    for i in range(50):
        last_out = shaped[:, i] - last_in + 0.995 * last_out
        last_in = shaped[:, i]
        expected[:, i] = np.clip(wave[:, i] * 0.5 + last_out * 0.75, -1, 1)
    assert np.abs(F.overdrive(torch.from_numpy(wave), 20, 20).numpy() - expected).max() < 1e-12


def transducer_loss(scores, target, blank):
    """The sum over all ways to say the target, each step of which is a label or a blank."""
    steps, labels = scores.shape[0], len(target)
    ways = []
    for places in itertools.combinations_with_replacement(range(steps), labels):
        total = 0.0
        for t in range(steps):
            for u in [u for u in range(labels) if places[u] == t]:
                total += scores[t, u, target[u]]
            total += scores[t, sum(place <= t for place in places), blank]
        ways.append(total)
    return -np.logaddexp.reduce(ways)


def test_transducer_loss():
    logits = rng.standard_normal((2, 4, 3, 5)).astype(np.float32)
    targets = np.array([[1, 3], [2, 0]], np.int32)
    lengths, sizes = np.array([4, 3], np.int32), np.array([2, 1], np.int32)
    scores = torch.from_numpy(logits).log_softmax(-1).double().numpy()
    expected = [transducer_loss(scores[n, : lengths[n]], targets[n, : sizes[n]], 4) for n in (0, 1)]
    given = torch.from_numpy(logits).requires_grad_()
    rest = [torch.from_numpy(one) for one in (targets, lengths, sizes)]
    found = F.rnnt_loss(given, *rest, blank=4, reduction="none")
    assert np.abs(found.detach().numpy() - expected).max() < 1e-5
    found.sum().backward()
    for place in ((0, 0, 0, 1), (0, 3, 2, 4), (1, 1, 1, 2), (1, 2, 0, 0)):
        values = []
        for change in (0.01, -0.01):
            other = logits.copy()
            other[place] += change
            changed = torch.from_numpy(other).log_softmax(-1).double().numpy()[place[0]]
            n = place[0]
            values.append(transducer_loss(changed[: lengths[n]], targets[n, : sizes[n]], 4))
        assert abs((values[0] - values[1]) / 0.02 - given.grad[place]) < 1e-3, place
    assert given.grad[1, 3].abs().max() == 0


def test_forced_alignment():
    """The best of all paths that say the target."""
    scores = torch.from_numpy(rng.standard_normal((1, 6, 4))).log_softmax(-1)
    target = [2, 2, 1]
    best = -math.inf
    for path in itertools.product(range(4), repeat=6):
        said = [label for label, _ in itertools.groupby(path) if label != 0]
        total = sum(scores[0, t, label].item() for t, label in enumerate(path))
        if said == target and total > best:
            best, expected = total, list(path)
    found, worth = F.forced_align(scores, torch.tensor([target]))
    assert found.tolist() == [expected] and abs(worth.sum().item() - best) < 1e-9


def test_transforms():
    rate, pitch = 8000, 440.0
    wave = torch.sin(torch.arange(rate, dtype=torch.float64) * 2 * math.pi * pitch / rate)
    spectrum = transforms.Spectrogram(n_fft=800)(wave.float())
    assert spectrum.shape[0] == 401 and spectrum[:, 10].argmax() == 44
    window = np.hanning(801)[:-1]
    part = np.abs(np.fft.rfft(wave.numpy()[3600:4400] * window)) ** 2
    assert np.abs(spectrum[:, 10].numpy() - part).max() < 1e-2 * part.max()
    double = transforms.Resample(rate, 2 * rate, dtype=torch.float64)(wave)
    expected = torch.sin(torch.arange(2 * rate, dtype=torch.float64) * math.pi * pitch / rate)
    assert (double - expected)[200:-200].abs().max() < 1e-2
    assert transforms.MelSpectrogram(rate, n_mels=40)(wave.float()).shape[0] == 40
    assert transforms.MFCC(rate, n_mfcc=13)(wave.float()).shape[0] == 13


def test_models():
    torch.manual_seed(0)
    with torch.device("meta"):
        for make in (
            models.wav2vec2_base,
            models.hubert_large,
            models.conv_tasnet_base,
            models.emformer_rnnt_base,
        ):
            make(**({"num_symbols": 100} if make is models.emformer_rnnt_base else {}))
        base = models.wav2vec2_base()
    # as published
    assert round(sum(p.numel() for p in base.parameters()) / 1e6) in (94, 95), sum(
        p.numel() for p in base.parameters()
    )
    model = models.Conformer(40, 4, 64, 2, 31)
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    features, wanted = torch.randn(2, 30, 40), torch.randn(2, 30, 40)
    losses = []
    for _ in range(10):
        found, _ = model(features, torch.tensor([30, 30]))
        loss = (found - wanted).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.9 * losses[0], losses


assert torchaudio.__version__ == "2.11.0"
for name, test in list(globals().items()):
    if name.startswith("test_"):
        test()
        print(name, "ok", flush=True)
