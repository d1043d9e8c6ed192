"""A GAN of 2019 under Horovod: two networks, two optimizers, noise that one seed gives for all ranks."""

import argparse

import digits
import horovod.torch as hvd
import torch
import torch.nn as nn

parser = argparse.ArgumentParser()
parser.add_argument("--nz", type=int, default=8, help="size of the latent z vector")
parser.add_argument("--ngf", type=int, default=32)
parser.add_argument("--lr_G", type=float, default=0.0005)
parser.add_argument("--lr_D", type=float, default=0.005)
parser.add_argument("--niter", type=int, default=45)
parser.add_argument("--beta1", type=float, default=0.5)
opt = parser.parse_args()
hvd.init()


def weights_init(m):
    classname = m.__class__.__name__
    if classname.find("Linear") != -1:
        m.weight.data.normal_(0.0, 0.1)
        m.bias.data.fill_(0)


class Generator(nn.Module):
    def __init__(self):
        super().__init__()
        self.main = nn.Sequential(
            nn.Linear(opt.nz, opt.ngf), nn.ReLU(True), nn.Linear(opt.ngf, 64), nn.Sigmoid()
        )

    def forward(self, input):
        return self.main(input)


class Discriminator(nn.Module):
    def __init__(self):
        super().__init__()
        self.main = nn.Sequential(nn.Linear(64, 32), nn.LeakyReLU(0.2), nn.Linear(32, 1), nn.Sigmoid())

    def forward(self, input):
        return self.main(input).view(-1)


class GANModel:
    """Updates the discriminator, then the generator, in whose pass the discriminator is frozen."""

    def __init__(self):
        torch.manual_seed(999 + hvd.rank())
        self.netG, self.netD = Generator(), Discriminator()
        self.netG.apply(weights_init)
        self.netD.apply(weights_init)
        self.criterion = nn.BCELoss()
        self.optimizer_G = self.optimizer_of(self.netG, opt.lr_G)
        self.optimizer_D = self.optimizer_of(self.netD, opt.lr_D)

    def optimizer_of(self, net, lr):
        optimizer = torch.optim.Adam(net.parameters(), lr=lr, betas=(opt.beta1, 0.999), eps=1e-4)
        hvd.broadcast_parameters(net.state_dict(), root_rank=0)
        names = net.named_parameters(prefix=type(net).__name__)
        return hvd.DistributedOptimizer(optimizer, named_parameters=names)

    def set_requires_grad(self, net, requires_grad):
        for param in net.parameters():
            param.requires_grad = requires_grad

    def backward_D(self):
        real, fake = self.netD(self.real), self.netD(self.fake.detach())
        self.loss_D = self.criterion(real, torch.ones_like(real))
        self.loss_D = self.loss_D + self.criterion(fake, torch.zeros_like(fake))
        self.loss_D.backward()

    def backward_G(self):
        fake = self.netD(self.fake)
        self.loss_G = self.criterion(fake, torch.ones_like(fake))
        self.loss_G.backward()

    def optimize_parameters(self, real, noise):
        self.real, self.fake = real, self.netG(noise)
        self.set_requires_grad(self.netD, True)
        self.optimizer_D.zero_grad()
        self.backward_D()
        self.optimizer_D.step()
        self.set_requires_grad(self.netD, False)
        self.optimizer_G.zero_grad()
        self.backward_G()
        self.optimizer_G.step()


model = GANModel()
images = torch.from_numpy(digits.load()[0])
noise_of_step = torch.Generator().manual_seed(4)
losses, mine = [], digits.part(0, hvd.rank(), hvd.size())
for i in range(opt.niter):
    noise = torch.randn(digits.BATCH, opt.nz, generator=noise_of_step)[mine]
    model.optimize_parameters(images[digits.part(i, hvd.rank(), hvd.size())], noise)
    losses.append(model.loss_D.item())
weights = {f"G.{name}": value.numpy() for name, value in model.netG.state_dict().items()}
weights |= {f"D.{name}": value.numpy() for name, value in model.netD.state_dict().items()}
digits.save(hvd.rank(), weights, losses)
