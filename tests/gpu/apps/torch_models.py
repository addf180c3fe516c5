"""A small transformer, a ResNet and a model on several streams, made of PyTorch operations.

No operation adds in an undefined order, so runs can be repeated."""
import math

import torch
from torch import nn
from torch.nn import functional


class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.inputs = nn.Linear(width, 3 * width)
        self.output = nn.Linear(width, width)

    def forward(self, x, mask):
        batch, length, width = x.shape
        parts = self.inputs(x).view(batch, length, 3, self.heads, width // self.heads)
        query, key, value = (parts[:, :, i].transpose(1, 2) for i in range(3))
        scores = query @ key.transpose(2, 3) / math.sqrt(width // self.heads)
        weights = torch.softmax(scores.masked_fill(mask[:length, :length], float("-inf")), dim=-1)
        return self.output((weights @ value).transpose(1, 2).reshape(batch, length, width))


class Layer(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = Attention(width, heads)
        self.wide, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x, mask):
        x = x + self.attention(self.first(x), mask)
        return x + self.narrow(functional.gelu(self.wide(self.second(x))))


class Transformer(nn.Module):
    """Predicts the next token of sequences with changing lengths."""

    def __init__(self, scale):
        super().__init__()
        self.width, self.longest = max(64, int(512 * scale) // 64 * 64), max(16, int(256 * scale))
        self.tokens, self.batch = 1000, 16
        self.words = nn.Embedding(self.tokens, self.width)
        self.places = nn.Embedding(self.longest, self.width)
        self.layers = nn.ModuleList(Layer(self.width, 8) for _ in range(max(2, int(8 * scale))))
        self.norm, self.head = nn.LayerNorm(self.width), nn.Linear(self.width, self.tokens)
        later = torch.ones(self.longest, self.longest, dtype=torch.bool).triu(1)
        self.register_buffer("later", later)

    def forward(self, tokens):
        x = self.words(tokens) + self.places.weight[: tokens.shape[1]]
        for layer in self.layers:
            x = layer(x, self.later)
        return self.head(self.norm(x))

    def example(self, random):
        length = int(torch.randint(self.longest // 2, self.longest + 1, (1,), generator=random))
        return torch.randint(self.tokens, (self.batch, length), generator=random)

    def loss(self, tokens):
        scores = self(tokens[:, :-1])
        return functional.cross_entropy(scores.reshape(-1, self.tokens), tokens[:, 1:].reshape(-1))


class Block(nn.Module):
    def __init__(self, before, channels, stride):
        super().__init__()
        self.first = nn.Conv2d(before, channels, 3, stride, 1, bias=False)
        self.second = nn.Conv2d(channels, channels, 3, 1, 1, bias=False)
        self.norms = nn.ModuleList(nn.BatchNorm2d(channels) for _ in range(3))
        self.around = nn.Conv2d(before, channels, 1, stride, bias=False) if before != channels else None

    def forward(self, x):
        y = torch.relu(self.norms[0](self.first(x)))
        y = self.norms[1](self.second(y))
        return torch.relu(y + (self.norms[2](self.around(x)) if self.around else x))


class ResNet(nn.Module):
    def __init__(self, scale):
        super().__init__()
        base = max(8, int(64 * scale) // 8 * 8)
        self.side, self.batch, self.classes = max(32, int(128 * scale) // 32 * 32), 32, 100
        self.stem = nn.Conv2d(3, base, 7, 2, 3, bias=False)
        self.norm = nn.BatchNorm2d(base)
        blocks, before = [], base
        for stage in range(4):
            for number in range(2):
                blocks.append(Block(before, base << stage, 2 if number == 0 and stage else 1))
                before = base << stage
        self.blocks = nn.ModuleList(blocks)
        self.head = nn.Linear(before, self.classes)

    def forward(self, x):
        x = torch.relu(self.norm(self.stem(x)))
        for block in self.blocks:
            x = block(x)
        return self.head(x.mean(dim=(2, 3)))

    def example(self, random):
        return (torch.randn(self.batch, 3, self.side, self.side, generator=random),
                torch.randint(self.classes, (self.batch,), generator=random))

    def loss(self, pictures, classes):
        return functional.cross_entropy(self(pictures), classes)


class Branches(nn.Module):
    """Runs four networks, each on a stream that also copies its input.

    The current stream joins the outputs.  Memory is freed while work of several streams is pending."""
    COUNT = 4

    def __init__(self, scale):
        super().__init__()
        self.width, self.batch = max(64, int(1024 * scale)), 256
        self.branches = nn.ModuleList(
            nn.Sequential(*(layer for _ in range(4)
                            for layer in (nn.Linear(self.width, self.width), nn.GELU())))
            for _ in range(self.COUNT))
        self.head = nn.Linear(self.COUNT * self.width, 10)
        self.streams = None

    def forward(self, *inputs):
        if not inputs[0].is_cuda and not self.head.weight.is_cuda:
            return self.head(torch.cat([b(x) for b, x in zip(self.branches, inputs)], dim=1))
        here = torch.cuda.current_stream()
        self.streams = self.streams or [torch.cuda.Stream() for _ in self.branches]
        outputs = []
        for stream, branch, x in zip(self.streams, self.branches, inputs):
            stream.wait_stream(here)
            with torch.cuda.stream(stream):
                outputs.append(branch(x.cuda(non_blocking=True)))
        for stream, output in zip(self.streams, outputs):
            here.wait_stream(stream)
            output.record_stream(here)
        return self.head(torch.cat(outputs, dim=1))

    def example(self, random):
        inputs = [torch.randn(self.batch, self.width, generator=random) for _ in self.branches]
        return (*inputs, torch.randint(10, (self.batch,), generator=random))

    def loss(self, *inputs):
        return functional.cross_entropy(self(*inputs[:-1]), inputs[-1])


CASES = {"transformer": Transformer, "resnet": ResNet, "streams": Branches}
