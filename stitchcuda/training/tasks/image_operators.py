"""Lists the operators on images, signals and volumes: convolutions, norms, pooling, channel and spatial attention, losses.

Those of several ranks are made from one template, with `N` for the number of spatial dimensions.
Where to look next: `training/tasks/operators.py` (what the fields mean).
"""

from __future__ import annotations

from stitchcuda.training.tasks.operators import Operator as Op


def _spatial(n: int) -> dict[str, list[Op]]:
    """The operators that images (2), signals (1) and volumes (3) share. `s`: the spatial dimensions, `h`: their halves."""
    s = {1: "T", 2: "H W", 3: "Z H W"}[n]
    h, up = " ".join(f"{letter}//2" for letter in s.split()), " ".join(f"{letter}*2" for letter in s.split())
    dims = {1: "-1", 2: "(2, 3)", 3: "(2, 3, 4)"}[n]
    ones = {1: "1", 2: "1, 1", 3: "1, 1, 1"}[n]
    shape = f"B K {s}"
    inner = ", ".join(["B", "C", *s.split()])
    return {
        "mix": [
            Op("3-wide convolution", "convolution", "mix", "x = self.conv(x)",
               f"self.conv = nn.Conv{n}d({{C}}, {{K}}, kernel_size=3, padding=1)", shape, new="K=channels", weight=3),
            Op("convolution without bias", "convolution", "mix", "x = self.conv(x)",
               f"self.conv = nn.Conv{n}d({{C}}, {{K}}, kernel_size=3, padding=1, bias=False)", shape, new="K=channels"),
            Op("strided convolution", "convolution", "mix", "x = self.conv(x)",
               f"self.conv = nn.Conv{n}d({{C}}, {{K}}, kernel_size=3, stride=2, padding=1)", f"B K {h}", new="K=channels"),
            Op("dilated convolution", "convolution", "mix", "x = self.conv(x)",
               f"self.conv = nn.Conv{n}d({{C}}, {{K}}, kernel_size=3, padding=2, dilation=2)", shape, new="K=channels"),
            Op("grouped convolution", "convolution", "mix", "x = self.conv(x)",
               f"self.conv = nn.Conv{n}d({{C}}, {{K}}, kernel_size=3, padding=1, groups=4)", shape, new="K=channels"),
            Op("pointwise convolution", "convolution", "mix", "x = self.conv(x)",
               f"self.conv = nn.Conv{n}d({{C}}, {{K}}, kernel_size=1)", shape, new="K=channels"),
            Op("depthwise convolution", "convolution", "mix", "x = self.dwconv(x)",
               f"self.dwconv = nn.Conv{n}d({{C}}, {{C}}, kernel_size=5, padding=2, groups={{C}})", weight=1.5),
            Op("separable convolution", "convolution", "mix", "x = self.pointwise(self.depthwise(x))",
               f"self.depthwise = nn.Conv{n}d({{C}}, {{C}}, kernel_size=3, padding=1, groups={{C}}, bias=False)\n"
               f"self.pointwise = nn.Conv{n}d({{C}}, {{K}}, kernel_size=1, bias=False)", shape, new="K=channels", weight=1.5),
            Op("transposed convolution", "convolution", "mix", "x = self.up(x)",
               f"self.up = nn.ConvTranspose{n}d({{C}}, {{K}}, kernel_size=4, stride=2, padding=1)", f"B K {up}",
               new="K=channels", weight=1.5),
            Op("weight-standardised convolution", "convolution", "mix",
               f"w = self.weight - self.weight.mean(dim={(1, 2, 3, 4)[: n + 1]}, keepdim=True)\n"
               f"w = w / (w.std(dim={(1, 2, 3, 4)[: n + 1]}, keepdim=True) + 1e-5) / math.sqrt(w[0].numel())\n"
               f"x = F.conv{n}d(x, w, self.bias, padding=1)",
               f"self.weight = nn.Parameter(torch.randn({{K}}, {{C}}, {', '.join(['3'] * n)}))\n"
               "self.bias = nn.Parameter(torch.zeros({K}))", shape, new="K=channels"),
            Op("gated convolution", "convolution", "mix", "x = torch.tanh(self.filter(x)) * torch.sigmoid(self.gate(x))",
               f"self.filter = nn.Conv{n}d({{C}}, {{K}}, kernel_size=3, padding=1)\n"
               f"self.gate = nn.Conv{n}d({{C}}, {{K}}, kernel_size=3, padding=1)", shape, new="K=channels", weight=1.5),
            Op("two parallel convolutions", "convolution", "mix", "x = torch.cat([self.branch1(x), self.branch3(x)], dim=1)",
               f"self.branch1 = nn.Conv{n}d({{C}}, {{K}}, kernel_size=1)\n"
               f"self.branch3 = nn.Conv{n}d({{C}}, {{K}}, kernel_size=3, padding=1)", f"B 2*K {s}", new="K=channels"),
            Op("inverted bottleneck", "convolution", "mix",
               "x = self.project(F.hardswish(self.dw(F.hardswish(self.expand(x)))))",
               f"self.expand = nn.Conv{n}d({{C}}, 2 * {{C}}, kernel_size=1)\n"
               f"self.dw = nn.Conv{n}d(2 * {{C}}, 2 * {{C}}, kernel_size=3, padding=1, groups=2 * {{C}})\n"
               f"self.project = nn.Conv{n}d(2 * {{C}}, {{C}}, kernel_size=1)"),
        ],
        "norm": [
            Op("batch norm", "normalisation", "norm", "x = self.bn(x)", f"self.bn = nn.BatchNorm{n}d({{C}})", weight=3),
            Op("group norm", "normalisation", "norm", "x = self.gn(x)", "self.gn = nn.GroupNorm(4, {C})", weight=2),
            Op("instance norm", "normalisation", "norm", "x = self.norm(x)",
               f"self.norm = nn.InstanceNorm{n}d({{C}}, affine=True)", weight=1.5),
            Op("layer norm over channels", "normalisation", "norm", "x = self.norm(x.movedim(1, -1)).movedim(-1, 1)",
               "self.norm = nn.LayerNorm({C})", weight=1.5),
            Op("RMS norm over channels", "normalisation", "norm",
               f"x = F.normalize(x, dim=1) * self.scale.view(-1, {ones}) * math.sqrt(x.shape[1])",
               "self.scale = nn.Parameter(torch.ones({C}))"),
            Op("global response norm", "normalisation", "norm",
               f"energy = torch.linalg.vector_norm(x, dim={dims}, keepdim=True)\n"
               "response = energy / (energy.mean(dim=1, keepdim=True) + 1e-6)\n"
               f"x = self.gamma.view(-1, {ones}) * (x * response) + self.beta.view(-1, {ones}) + x",
               "self.gamma = nn.Parameter(torch.full(({C},), 0.5))\nself.beta = nn.Parameter(torch.zeros({C}))"),
            Op("conditional instance norm", "normalisation", "norm",
               f"scale, shift = self.style(style).view(x.shape[0], -1, {ones}).chunk(2, dim=1)\n"
               f"x = self.norm(x) * (1 + scale) + shift",
               f"self.norm = nn.InstanceNorm{n}d({{C}})\nself.style = nn.Linear({{K}}, 2 * {{C}})", new="K=cond_dim",
               inputs="style=randn(B, K)", weight=1.5),
        ],
        "act": [
            Op("PReLU", "element-wise", "act", "x = self.prelu(x)", "self.prelu = nn.PReLU({C})"),
            Op("GLU over channels", "element-wise", "act", "x = F.glu(x, dim=1)", shape=f"B C//2 {s}", weight=1.5),
            Op("snake activation", "element-wise", "act",
               f"alpha = self.alpha.view(-1, {ones})\nx = x + torch.sin(alpha * x).pow(2) / (alpha.abs() + 1e-3)",
               "self.alpha = nn.Parameter(torch.ones({C}))"),
            Op("simple gate", "element-wise", "act", "left, right = x.chunk(2, dim=1)\nx = left * right", shape=f"B C//2 {s}"),
        ],
        "pool": [
            Op("max pooling", "reduction", "pool", f"x = F.max_pool{n}d(x, kernel_size=2)", shape=f"B C {h}", weight=2),
            Op("average pooling", "reduction", "pool", f"x = F.avg_pool{n}d(x, kernel_size=2)", shape=f"B C {h}", weight=1.5),
            Op("overlapping max pooling", "reduction", "pool", f"x = F.max_pool{n}d(x, kernel_size=3, stride=2, padding=1)",
               shape=f"B C {h}"),
        ],
        "join": [
            Op("concatenation with a skip connection", "several inputs", "join",
               "x = self.fuse(torch.cat([x, skip], dim=1))", f"self.fuse = nn.Conv{n}d({{C}} + {{K}}, {{C}}, kernel_size=1)",
               new="K=channels", inputs=f"skip=randn(B, K, {', '.join(s.split())})", weight=1.5),
            Op("sum with a skip connection", "several inputs", "join", "x = x + skip", inputs=f"skip=randn({inner})",
               weight=1.5),
            Op("feature-wise modulation", "several inputs", "join",
               f"scale, shift = self.film(cond).view(x.shape[0], -1, {ones}).chunk(2, dim=1)\nx = x * (1 + scale) + shift",
               "self.film = nn.Linear({K}, 2 * {C})", new="K=cond_dim", inputs="cond=randn(B, K)", weight=1.5),
            Op("time embedding", "several inputs", "join", f"x = x + self.time_proj(F.silu(emb)).view(x.shape[0], -1, {ones})",
               "self.time_proj = nn.Linear({K}, {C})", new="K=cond_dim", inputs="emb=randn(B, K)", weight=1.5),
            Op("attention gate", "several inputs", "join",
               "x = x * torch.sigmoid(self.psi(F.relu(self.theta(x) + self.phi(gating))))",
               f"self.theta = nn.Conv{n}d({{C}}, {{C}} // 2, kernel_size=1)\n"
               f"self.phi = nn.Conv{n}d({{K}}, {{C}} // 2, kernel_size=1)\n"
               f"self.psi = nn.Conv{n}d({{C}} // 2, 1, kernel_size=1)",
               new="K=channels", inputs=f"gating=randn(B, K, {', '.join(s.split())})"),
            Op("squeeze-and-excitation", "attention", "join",
               f"weights = self.excite(F.relu(self.squeeze(x.mean(dim={dims}))))\n"
               f"x = x * torch.sigmoid(weights).view(x.shape[0], -1, {ones})",
               "self.squeeze = nn.Linear({C}, {C} // 4)\nself.excite = nn.Linear({C} // 4, {C})", weight=1.5),
            Op("efficient channel attention", "attention", "join",
               f"weights = self.eca(x.mean(dim={dims}).unsqueeze(1))\n"
               f"x = x * torch.sigmoid(weights).view(x.shape[0], -1, {ones})",
               "self.eca = nn.Conv1d(1, 1, kernel_size=3, padding=1, bias=False)"),
            Op("layer scale and residual", "several inputs", "join", f"x = residual + self.gamma.view(-1, {ones}) * x",
               "self.gamma = nn.Parameter(torch.full(({C},), 0.5))", inputs=f"residual=randn({inner})", affine=True),
        ],
        "move": [
            Op("nearest-neighbour upsampling and convolution", "convolution", "move",
               "x = self.conv(F.interpolate(x, scale_factor=2, mode='nearest'))",
               f"self.conv = nn.Conv{n}d({{C}}, {{K}}, kernel_size=3, padding=1)", f"B K {up}", new="K=channels"),
        ],
        "head": [
            Op("global average pooling", "reduction", "head", f"x = F.adaptive_avg_pool{n}d(x, 1).flatten(1)", shape="B C",
               to="rows", weight=2),
            Op("global max pooling", "reduction", "head", f"x = x.amax(dim={dims})", shape="B C", to="rows"),
            Op("mean and maximum of each channel", "reduction", "head",
               f"x = torch.cat([x.mean(dim={dims}), x.amax(dim={dims})], dim=1)", shape="B 2*C", to="rows"),
            Op("mean and deviation of each channel", "reduction", "head",
               "flat = x.flatten(2)\nx = torch.cat([flat.mean(dim=2), flat.std(dim=2)], dim=1)", shape="B 2*C", to="rows"),
            Op("attentive statistics pooling", "reduction", "head",
               "flat = x.flatten(2)\nweights = F.softmax(self.attend(flat), dim=2)\nmean = (weights * flat).sum(dim=2)\n"
               "var = (weights * flat.pow(2)).sum(dim=2) - mean.pow(2)\n"
               "x = torch.cat([mean, var.clamp(min=1e-6).sqrt()], dim=1)",
               "self.attend = nn.Conv1d({C}, {C}, kernel_size=1)", "B 2*C", "rows"),
            Op("Gram matrix", "product", "head",
               "flat = x.flatten(2)\nx = flat @ flat.transpose(1, 2) / flat.shape[-1]", shape="B C C", to="matrices",
               weight=0.3),
        ],
        "loss": [
            Op("mean squared error", "reduction", "loss", "x = F.mse_loss(x, target, reduction='none').mean(dim=1)",
               inputs=f"target=randn({inner})"),
            Op("Charbonnier loss", "reduction", "loss", "x = torch.sqrt((x - target).pow(2) + 1e-6).mean(dim=1)",
               inputs=f"target=randn({inner})"),
            Op("binary cross-entropy", "reduction", "loss",
               "x = F.binary_cross_entropy_with_logits(x, target, reduction='none').mean(dim=1)",
               inputs=f"target=rand({inner})"),
            Op("focal loss", "reduction", "loss",
               "ce = F.binary_cross_entropy_with_logits(x, target, reduction='none')\np = torch.exp(-ce)\n"
               "x = ((1 - p).pow(2) * ce).mean(dim=1)", inputs=f"target=rand({inner})"),
            Op("softmax over channels", "reduction", "loss", "x = F.softmax(x, dim=1)"),
            Op("log-softmax over channels", "reduction", "loss", "x = F.log_softmax(x, dim=1)"),
            Op("dense cross-entropy", "reduction", "loss", "x = F.cross_entropy(self.classify(x), labels, reduction='none')",
               f"self.classify = nn.Conv{n}d({{C}}, {{K}}, kernel_size=1)", new="K=num_classes",
               inputs=f"labels=ints(K; B, {', '.join(s.split())})"),
        ],
    }  # fmt: skip


IMAGE, SIGNAL, VOLUME = _spatial(2), _spatial(1), _spatial(3)
IMAGE["mix"] += [
    Op("non-local block", "attention", "mix",
       "b, c, h, w = x.shape\nq, k, v = self.theta(x).flatten(2), self.phi(x).flatten(2), self.g(x).flatten(2)\n"
       "attention = F.softmax(q.transpose(1, 2) @ k, dim=-1)\n"
       "x = x + self.out((v @ attention.transpose(1, 2)).view(b, -1, h, w))",
       "self.theta = nn.Conv2d({C}, {C} // 2, kernel_size=1)\nself.phi = nn.Conv2d({C}, {C} // 2, kernel_size=1)\n"
       "self.g = nn.Conv2d({C}, {C} // 2, kernel_size=1)\nself.out = nn.Conv2d({C} // 2, {C}, kernel_size=1)", weight=1.5,
       skips=True),
    Op("spatial attention", "attention", "mix",
       "pooled = torch.cat([x.mean(dim=1, keepdim=True), x.amax(dim=1, keepdim=True)], dim=1)\n"
       "x = x * torch.sigmoid(self.spatial(pooled))", "self.spatial = nn.Conv2d(2, 1, kernel_size=7, padding=3)", weight=1.5),
    Op("coordinate attention", "attention", "mix",
       "rows = torch.sigmoid(self.conv_h(x.mean(dim=3, keepdim=True)))\n"
       "columns = torch.sigmoid(self.conv_w(x.mean(dim=2, keepdim=True)))\nx = x * rows * columns",
       "self.conv_h = nn.Conv2d({C}, {C}, kernel_size=1)\nself.conv_w = nn.Conv2d({C}, {C}, kernel_size=1)"),
    Op("global context block", "attention", "mix",
       "weights = F.softmax(self.mask(x).flatten(2), dim=-1)\ncontext = x.flatten(2) @ weights.transpose(1, 2)\n"
       "x = x + self.transform(context.unsqueeze(-1))",
       "self.mask = nn.Conv2d({C}, 1, kernel_size=1)\nself.transform = nn.Conv2d({C}, {C}, kernel_size=1)"),
    Op("asymmetric convolutions", "convolution", "mix", "x = self.horizontal(self.vertical(x))",
       "self.vertical = nn.Conv2d({C}, {K}, kernel_size=(7, 1), padding=(3, 0))\n"
       "self.horizontal = nn.Conv2d({K}, {K}, kernel_size=(1, 7), padding=(0, 3))", "B K H W", new="K=channels"),
    Op("window self-attention", "attention", "mix",
       "b, c, h, w = x.shape\nt = x.view(b, c, h // 4, 4, w // 4, 4).permute(0, 2, 4, 3, 5, 1).reshape(-1, 16, c)\n"
       "q, k, v = self.qkv(t).chunk(3, dim=-1)\nt = F.softmax(q @ k.transpose(1, 2) / math.sqrt(c), dim=-1) @ v\n"
       "x = x + t.view(b, h // 4, w // 4, 4, 4, c).permute(0, 5, 1, 3, 2, 4).reshape(b, c, h, w)",
       "self.qkv = nn.Linear({C}, 3 * {C})", skips=True),
]
IMAGE["pool"] += [
    Op("blur pooling", "convolution", "pool",
       "x = F.conv2d(x, self.blur.expand(x.shape[1], 1, 3, 3), stride=2, padding=1, groups=x.shape[1])",
       "k = torch.tensor([1.0, 2.0, 1.0])\nself.register_buffer('blur', torch.outer(k, k) / 16)", "B C H//2 W//2"),
    Op("pyramid pooling", "reduction", "pool",
       "size = x.shape[2:]\nlevels = [F.interpolate(F.adaptive_avg_pool2d(x, bins), size=size, mode='nearest') for bins "
       "in (1, 2, 4)]\n"
       "x = self.fuse(torch.cat([x, *levels], dim=1))", "self.fuse = nn.Conv2d(4 * {C}, {C}, kernel_size=1)"),
    Op("cascade of max pools", "reduction", "pool",
       "y1 = F.max_pool2d(x, 5, stride=1, padding=2)\ny2 = F.max_pool2d(y1, 5, stride=1, padding=2)\n"
       "x = self.merge(torch.cat([x, y1, y2], dim=1))", "self.merge = nn.Conv2d(3 * {C}, {C}, kernel_size=1)"),
]
IMAGE["move"] += [
    Op("pixel shuffle", "movement", "move", "x = F.pixel_shuffle(x, 2)", shape="B C//4 H*2 W*2", weight=1.5),
    Op("pixel unshuffle", "movement", "move", "x = F.pixel_unshuffle(x, 2)", shape="B C*4 H//2 W//2"),
    Op("bilinear upsampling", "movement", "move", "x = F.interpolate(x, scale_factor=2, mode='bilinear', align_corners=False)",
       shape="B C H*2 W*2", weight=1.5),
    Op("reflection padding and convolution", "convolution", "move", "x = self.conv(F.pad(x, (1, 1, 1, 1), mode='reflect'))",
       "self.conv = nn.Conv2d({C}, {K}, kernel_size=3)", "B K H W", new="K=channels"),
]
IMAGE["head"] += [
    Op("flattening into tokens", "movement", "head", "x = x.flatten(2).transpose(1, 2)", shape="B H*W C", to="sequence",
       weight=2),
    Op("patch embedding", "convolution", "head", "x = self.patch(x).flatten(2).transpose(1, 2)",
       "self.patch = nn.Conv2d({C}, {D}, kernel_size=4, stride=4)", "B (H//4)*(W//4) D", "sequence", "D=embed_dim", weight=1.5),
]
SIGNAL["mix"] += [
    Op("causal convolution", "convolution", "mix", "x = self.conv(F.pad(x, (4, 0)))",
       "self.conv = nn.Conv1d({C}, {K}, kernel_size=3, dilation=2)", "B K T", new="K=channels", weight=2),
    Op("cumulative sum of deviations over time", "scan", "mix",
       "x = torch.cumsum(x - x.mean(dim=-1, keepdim=True), dim=-1) / math.sqrt(x.shape[-1])", weight=2, first=True),
]
SIGNAL["move"] += [
    Op("linear upsampling", "movement", "move", "x = F.interpolate(x, scale_factor=2, mode='linear', align_corners=False)",
       shape="B C T*2"),
]
SIGNAL["head"] += [
    Op("transposition to a sequence", "movement", "head", "x = x.transpose(1, 2)", shape="B T C", to="sequence"),
]
SIGNAL["norm"] += [
    Op("cumulative layer norm", "scan", "norm",
       "count = torch.arange(1, x.shape[-1] + 1, device=x.device) * x.shape[1]\n"
       "mean = torch.cumsum(x.sum(dim=1), dim=-1) / count\npower = torch.cumsum(x.pow(2).sum(dim=1), dim=-1) / count\n"
       "x = (x - mean.unsqueeze(1)) * torch.rsqrt((power - mean.pow(2)).clamp(min=0) + 1e-5).unsqueeze(1)"),
]
