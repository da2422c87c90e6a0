"""Lists the operators on rows of features, batches of matrices and sets of points, and activations for every layout.

Where to look next: `training/tasks/operators.py` (what the fields mean).
"""

from __future__ import annotations

from stitchcuda.training.tasks.operators import Operator as Op

ACTIVATIONS = [
    Op(name, "element-wise", "act", forward, weight=weight)
    for name, forward, weight in (
        ("ReLU", "x = F.relu(x)", 2), ("GELU", "x = F.gelu(x)", 2), ("tanh GELU", "x = F.gelu(x, approximate='tanh')", 1),
        ("SiLU", "x = F.silu(x)", 2), ("Mish", "x = F.mish(x)", 1), ("hard swish", "x = F.hardswish(x)", 1),
        ("leaky ReLU", "x = F.leaky_relu(x, negative_slope=0.1)", 1), ("ELU", "x = F.elu(x)", 0.7),
        ("SELU", "x = F.selu(x)", 0.4), ("ReLU6", "x = F.relu6(x)", 0.5), ("softplus", "x = F.softplus(x)", 0.6),
        ("tanh", "x = torch.tanh(x)", 0.7), ("squared ReLU", "x = torch.square(F.relu(x))", 1),
        ("sigmoid-weighted quick GELU", "x = x * torch.sigmoid(1.702 * x)", 1),
    )
]  # fmt: skip
ROWS = {
    "mix": [
        Op("linear layer", "product", "mix", "x = self.fc(x)", "self.fc = nn.Linear({F}, {G})", "B G", new="G=features",
           weight=3),
        Op("two-layer perceptron", "product", "mix", "x = self.fc_out(F.relu(self.fc_in(x)))",
           "self.fc_in = nn.Linear({F}, {H})\nself.fc_out = nn.Linear({H}, {G})", "B G", new="H=hidden_dim G=features",
           weight=2),
        Op("gated perceptron", "product", "mix", "x = self.down(F.silu(self.gate(x)) * self.up(x))",
           "self.gate = nn.Linear({F}, {H})\nself.up = nn.Linear({F}, {H})\nself.down = nn.Linear({H}, {F})",
           new="H=hidden_dim"),
        Op("low-rank linear layer", "product", "mix", "x = self.expand(self.reduce(x))",
           "self.reduce = nn.Linear({F}, {R}, bias=False)\nself.expand = nn.Linear({R}, {G})", "B G", new="R=rank G=features"),
        Op("cross layer", "product", "mix", "x = x * self.cross(x) + x", "self.cross = nn.Linear({F}, {F})", skips=True),
        Op("highway layer", "product", "mix",
           "gate = torch.sigmoid(self.gate(x))\nx = gate * F.relu(self.transform(x)) + (1 - gate) * x",
           "self.gate = nn.Linear({F}, {F})\nself.transform = nn.Linear({F}, {F})", skips=True),
        Op("linear layer with unit-norm weights", "product", "mix",
           "x = F.linear(F.normalize(x, dim=-1), F.normalize(self.weight, dim=-1)) * self.scale",
           "self.weight = nn.Parameter(torch.randn({G}, {F}))\nself.scale = nn.Parameter(torch.tensor(16.0))", "B G",
           new="G=features"),
        Op("soft mixture of linear experts", "product", "mix",
           "weights = F.softmax(self.router(x), dim=-1)\n"
           "x = torch.einsum('bn,bng->bg', weights, self.experts(x).unflatten(-1, (weights.shape[-1], -1)))",
           "self.router = nn.Linear({F}, {N})\nself.experts = nn.Linear({F}, {N} * {G})", "B G",
           new="N=num_experts G=features"),
        Op("LSTM cell update", "scan", "mix",
           "i, f, g, o = (self.input_gates(x) + self.hidden_gates(h)).chunk(4, dim=-1)\n"
           "cell = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)\nx = torch.sigmoid(o) * torch.tanh(cell)",
           "self.input_gates = nn.Linear({F}, 4 * {G})\nself.hidden_gates = nn.Linear({G}, 4 * {G})", "B G", new="G=features",
           inputs="h=randn(B, G);c=randn(B, G)", weight=1.5),
        Op("GRU cell update", "scan", "mix",
           "r, z = torch.sigmoid(self.gates(torch.cat([x, h], dim=-1))).chunk(2, dim=-1)\n"
           "candidate = torch.tanh(self.candidate(torch.cat([x, r * h], dim=-1)))\nx = (1 - z) * h + z * candidate",
           "self.gates = nn.Linear({F} + {G}, 2 * {G})\nself.candidate = nn.Linear({F} + {G}, {G})", "B G", new="G=features",
           inputs="h=randn(B, G)", weight=1.5),
        Op("cumulative sum of deviations over features", "scan", "mix",
           "x = torch.cumsum(x - x.mean(dim=-1, keepdim=True), dim=-1) / math.sqrt(x.shape[-1])",
           first=True),
        Op("reverse cumulative sum", "scan", "mix",
           "x = torch.flip(torch.cumsum(torch.flip(x, [-1]), dim=-1), [-1]) / math.sqrt(x.shape[-1])",
           first=True),
        Op("masked cumulative sum", "scan", "mix", "x = torch.cumsum(x * mask, dim=-1) / math.sqrt(x.shape[-1])",
           inputs="mask=mask(B, F)", first=True),
    ],
    "norm": [
        Op("layer norm", "normalisation", "norm", "x = self.norm(x)", "self.norm = nn.LayerNorm({F})", weight=2),
        Op("batch norm", "normalisation", "norm", "x = self.bn(x)", "self.bn = nn.BatchNorm1d({F})", weight=2),
        Op("RMS norm", "normalisation", "norm", "x = x * torch.rsqrt(x.pow(2).mean(dim=-1, keepdim=True) + 1e-6) * self.scale",
           "self.scale = nn.Parameter(torch.ones({F}))", weight=2),
        Op("group norm", "normalisation", "norm", "x = self.norm(x)", "self.norm = nn.GroupNorm(4, {F})"),
        Op("standardisation of each row", "normalisation", "norm",
           "x = (x - x.mean(dim=-1, keepdim=True)) / (x.std(dim=-1, keepdim=True) + 1e-5)"),
        Op("unit L1 norm", "normalisation", "norm", "x = x / (x.abs().mean(dim=-1, keepdim=True) + 1e-6)"),
        Op("residual sum and layer norm", "normalisation", "norm", "x = self.norm(x + residual)",
           "self.norm = nn.LayerNorm({F})", inputs="residual=randn(B, F)"),
    ],
    "act": [Op("GLU", "element-wise", "act", "x = F.glu(x, dim=-1)", shape="B F//2"),
            Op("maxout", "reduction", "act", "x = x.unflatten(-1, (-1, 2)).amax(dim=-1)", shape="B F//2")],
    "join": [
        Op("sum with a second vector", "several inputs", "join", "x = x + other", inputs="other=randn(B, F)"),
        Op("gate by a second vector", "several inputs", "join", "x = x * torch.sigmoid(self.gate(other))",
           "self.gate = nn.Linear({K}, {F})", new="K=cond_dim", inputs="other=randn(B, K)"),
        Op("fusion with a second vector", "several inputs", "join", "x = self.fuse(torch.cat([x, other], dim=-1))",
           "self.fuse = nn.Linear({F} + {K}, {G})", "B G", new="K=features G=features", inputs="other=randn(B, K)"),
        Op("embedding of a category", "several inputs", "join", "x = torch.cat([x, self.embedding(category)], dim=-1)",
           "self.embedding = nn.Embedding({V}, {K})", "B F+K", new="V=vocab_size K=cond_dim", inputs="category=ints(V; B)"),
        Op("embedding bag", "several inputs", "join", "x = x + self.bag(tokens).mean(dim=1)",
           "self.bag = nn.Embedding({V}, {F})", new="V=vocab_size S=num_neighbors", inputs="tokens=ints(V; B, S)"),
        Op("bias of a second vector and clamping", "several inputs", "join", "x = torch.clamp(x + other, min=-2.0, max=2.0)",
           inputs="other=randn(B, F)"),
    ],
    "loss": [
        Op("scores against prototypes", "product", "loss",
           "distance = x.pow(2).sum(dim=-1, keepdim=True) - 2 * x @ self.prototypes.t() + self.prototypes.pow(2).sum(dim=-1)\n"
           "x = torch.exp(-distance / (2 * x.shape[-1]))",
           "self.prototypes = nn.Parameter(torch.randn({G}, {F}))", "B G", new="G=features"),
        Op("vector quantisation distances", "product", "loss", "x = torch.cdist(x, self.codebook)",
           "self.codebook = nn.Parameter(torch.randn({G}, {F}))", "B G", new="G=features", weight=0.7),
        Op("softmax", "reduction", "loss", "x = F.softmax(x, dim=-1)", weight=1.5),
        Op("log-softmax", "reduction", "loss", "x = F.log_softmax(x, dim=-1)"),
        Op("log-sum-exp", "reduction", "loss", "x = torch.logsumexp(x, dim=-1)"),
        Op("sum of squares", "reduction", "loss", "x = x.pow(2).sum(dim=-1)"),
        Op("classification loss", "reduction", "loss",
           "x = F.cross_entropy(self.classifier(x), labels, label_smoothing=0.1, reduction='none')",
           "self.classifier = nn.Linear({F}, {K})", new="K=num_classes", inputs="labels=ints(K; B)", weight=2),
        Op("contrastive loss", "product", "loss",
           "logits = F.normalize(x, dim=-1) @ F.normalize(other, dim=-1).t() / 0.07\n"
           "labels = torch.arange(logits.shape[0], device=x.device)\n"
           "x = F.cross_entropy(logits, labels, reduction='none') + F.cross_entropy(logits.t(), labels, reduction='none')",
           inputs="other=randn(B, F)", weight=1.5),
        Op("triplet loss", "reduction", "loss",
           "closer = (x - positive).pow(2).sum(dim=-1)\nfarther = (x - negative).pow(2).sum(dim=-1)\n"
           "x = F.softplus((closer - farther) / x.shape[-1])", inputs="positive=randn(B, F);negative=randn(B, F)"),
        Op("mean squared error", "reduction", "loss", "x = F.mse_loss(x, target, reduction='none').mean(dim=-1)",
           inputs="target=randn(B, F)"),
        Op("Huber loss of each row", "reduction", "loss", "x = F.huber_loss(x, target, reduction='none').mean(dim=-1)",
           inputs="target=randn(B, F)"),
        Op("cosine similarity", "reduction", "loss", "x = F.cosine_similarity(x, other, dim=-1)", inputs="other=randn(B, F)"),
        Op("factorisation machine", "reduction", "loss",
           "square_of_sum = (x @ self.factors).pow(2)\nsum_of_square = x.pow(2) @ self.factors.pow(2)\n"
           "x = 0.5 * (square_of_sum - sum_of_square).sum(dim=-1) / x.shape[-1]",
           "self.factors = nn.Parameter(torch.randn({F}, {R}) * 0.1)", new="R=rank"),
        Op("similarity matrix", "product", "loss", "x = F.normalize(x, dim=-1)\nx = x @ x.t()"),
        Op("Gaussian KL divergence", "reduction", "loss",
           "mean, log_var = x.chunk(2, dim=-1)\nlog_var = log_var.clamp(-6.0, 6.0)\n"
           "x = -0.5 * (1 + log_var - mean.pow(2) - log_var.exp()).sum(dim=-1)"),
        Op("top-k softmax", "reduction", "loss", "x = F.softmax(x.topk(4, dim=-1).values, dim=-1)"),
        Op("bilinear score", "product", "loss", "x = (self.bilinear(x) * other).sum(dim=-1)",
           "self.bilinear = nn.Linear({F}, {K}, bias=False)", new="K=features", inputs="other=randn(B, K)"),
    ],
}
MATRICES = {
    "mix": [
        Op("batched product", "product", "mix", "x = torch.bmm(x, other) / math.sqrt(x.shape[-1])", shape="B M K",
           new="K=matrix_cols", inputs="other=randn(B, N, K)", weight=3),
        Op("product with a transposed batch", "product", "mix",
           "x = x @ other.transpose(1, 2) / math.sqrt(x.shape[-1])", shape="B M K", new="K=matrix_cols",
           inputs="other=randn(B, K, N)", weight=2),
        Op("product with a shared matrix", "product", "mix",
           "x = torch.einsum('bmn,nk->bmk', x, weight) / math.sqrt(x.shape[-1])", shape="B M K",
           new="K=matrix_cols", inputs="weight=randn(N, K)", weight=1.5),
        Op("batched product with a bias", "product", "mix", "x = torch.baddbmm(self.bias, x, other, alpha=x.shape[-1] ** -0.5)",
           "self.bias = nn.Parameter(torch.randn({K}))", "B M K", new="K=matrix_cols", inputs="other=randn(B, N, K)"),
        Op("product with a triangular matrix", "product", "mix", "x = torch.tril(lower) @ x / math.sqrt(x.shape[1])",
           inputs="lower=randn(B, M, M)"),
        Op("two-sided product", "product", "mix", "x = left @ x @ right / math.sqrt(x.shape[1] * x.shape[2])",
           inputs="left=randn(M, M);right=randn(N, N)"),
        Op("graph convolution", "product", "mix",
           "adjacency = edges.to(x.dtype)\ndegree = adjacency.sum(dim=-1, keepdim=True).clamp(min=1.0)\n"
           "x = self.own(x) + torch.bmm(adjacency, self.node(x)) / degree",
           "self.own = nn.Linear({N}, {K})\nself.node = nn.Linear({N}, {K})", "B M K", new="K=matrix_cols",
           inputs="edges=sparse(B, M, M)", weight=2),
        Op("graph attention", "attention", "mix",
           "h = self.node(x)\nscores = F.leaky_relu(self.source(h) + self.target(h).transpose(1, 2), negative_slope=0.2)\n"
           "x = h + F.softmax(scores.masked_fill(~edges, -1e4), dim=-1) @ h",
           "self.node = nn.Linear({N}, {K}, bias=False)\nself.source = nn.Linear({K}, 1)\nself.target = nn.Linear({K}, 1)",
           "B M K", new="K=matrix_cols", inputs="edges=sparse(B, M, M)", weight=2),
        Op("attention from three matrices", "attention", "mix",
           "x = F.softmax(x @ keys.transpose(1, 2) / math.sqrt(x.shape[-1]), dim=-1) @ values", shape="B M K",
           new="S=context_len K=matrix_cols", inputs="keys=randn(B, S, N);values=randn(B, S, K)", weight=2),
        Op("delta rule update", "product", "mix",
           "error = value - torch.bmm(key, x)\nx = x + torch.bmm(key.transpose(1, 2), error) / key.shape[1]",
           new="S=context_len", inputs="key=randn(B, S, M);value=randn(B, S, N)", affine=True),
        Op("prefix sums of deviations along rows", "scan", "mix",
           "x = torch.cumsum(x - x.mean(dim=-1, keepdim=True), dim=-1) / math.sqrt(x.shape[-1])", first=True),
        Op("summed-area table", "scan", "mix",
           "x = x - x.mean(dim=(1, 2), keepdim=True)\n"
           "x = torch.cumsum(torch.cumsum(x, dim=1), dim=2) / math.sqrt(x.shape[1] * x.shape[2])", weight=1.5, first=True),
        Op("linear recurrence by a decay mask", "scan", "mix",
           "log_decay = torch.cumsum(F.logsigmoid(gates + 1.0), dim=1)\n"
           "weights = torch.tril(torch.exp((log_decay[:, :, None] - log_decay[:, None, :]).clamp(max=0.0)))\n"
           "x = weights @ x", inputs="gates=randn(B, M)", weight=2, affine=True),
    ],
    "norm": [
        Op("layer norm of the rows", "normalisation", "norm", "x = F.layer_norm(x, (x.shape[-1],))", weight=2),
        Op("normalisation by rows and columns", "normalisation", "norm",
           "x = x.sigmoid()\nx = x / x.sum(dim=-1, keepdim=True)\nx = x / x.sum(dim=-2, keepdim=True)"),
        Op("whole-matrix norm", "normalisation", "norm",
           "x = x / torch.linalg.vector_norm(x, dim=(1, 2), keepdim=True) * math.sqrt(x.shape[1] * x.shape[2])"),
        Op("centring by rows and columns", "normalisation", "norm",
           "x = x - x.mean(dim=1, keepdim=True) - x.mean(dim=2, keepdim=True) + x.mean(dim=(1, 2), keepdim=True)"),
    ],
    "act": [Op("row bias and ReLU", "element-wise", "act", "x = F.relu(x + self.bias)",
    "self.bias = nn.Parameter(torch.randn({N}))"),
            Op("row bias and GELU", "element-wise", "act", "x = F.gelu(x + self.bias)",
               "self.bias = nn.Parameter(torch.randn({N}))")],
    "join": [
        Op("residual", "several inputs", "join", "x = x + residual", inputs="residual=randn(B, M, N)"),
        Op("scaling by columns", "several inputs", "join", "x = x * scale.unsqueeze(1)", inputs="scale=randn(B, N)"),
        Op("mask", "several inputs", "join", "x = torch.where(mask, x, torch.zeros_like(x))", inputs="mask=mask(B, M, N)"),
    ],
    "loss": [
        Op("softmax over rows", "reduction", "loss", "x = F.softmax(x, dim=-1)"),
        Op("softmax over columns", "reduction", "loss", "x = F.softmax(x, dim=1)"),
    ],
    "head": [
        Op("sum over rows", "reduction", "head", "x = x.sum(dim=1)", shape="B N", to="rows"),
        Op("maximum over rows", "reduction", "head", "x = x.amax(dim=1)", shape="B N", to="rows"),
        Op("variance of rows", "reduction", "head", "x = x.var(dim=-1)", shape="B M", to="rows"),
        Op("Frobenius energy of rows", "reduction", "head", "x = torch.linalg.vector_norm(x, dim=-1)", shape="B M", to="rows"),
        Op("weighted sum by a second input", "reduction", "head", "x = torch.einsum('bmn,bm->bn', x, weights)", shape="B N",
           to="rows", inputs="weights=randn(B, M)"),
    ],
}
POINTS = {
    "mix": [
        Op("shared perceptron", "product", "mix", "x = self.mlp(x)", "self.mlp = nn.Linear({C}, {K})", "B P K",
           new="K=channels", weight=2),
        Op("edge convolution", "convolution", "mix",
           "b, p, c = x.shape\nneighbors = torch.gather(x, 1, index.reshape(b, -1, 1).expand(-1, -1, c)).view(b, p, -1, c)\n"
           "center = x.unsqueeze(2).expand_as(neighbors)\n"
           "x = F.leaky_relu(self.edge(torch.cat([center, neighbors - center], dim=-1)), negative_slope=0.2).amax(dim=2)",
           "self.edge = nn.Linear(2 * {C}, {K})", "B P K", new="K=channels S=num_neighbors",
           inputs="index=ints(P; B, P, S)", weight=2),
        Op("neighbourhood mean", "reduction", "mix",
           "b, p, c = x.shape\nneighbors = torch.gather(x, 1, index.reshape(b, -1, 1).expand(-1, -1, c)).view(b, p, -1, c)\n"
           "x = F.relu(self.own(x) + self.other(neighbors.mean(dim=2)))",
           "self.own = nn.Linear({C}, {K})\nself.other = nn.Linear({C}, {K})", "B P K", new="K=channels S=num_neighbors",
           inputs="index=ints(P; B, P, S)", weight=2),
        Op("kernel smoothing by distances", "attention", "mix",
           "distance = torch.cdist(positions, positions)\nx = F.softmax(-8.0 * distance.pow(2), dim=-1) @ self.value(x)",
           "self.value = nn.Linear({C}, {K})", "B P K", new="K=channels", inputs="positions=randn(B, P, 3)", weight=2),
        Op("attention over points", "attention", "mix",
           "q, k, v = self.qkv(x).chunk(3, dim=-1)\n"
           "x = x + F.softmax(q @ k.transpose(1, 2) / math.sqrt(q.shape[-1]), dim=-1) @ v",
           "self.qkv = nn.Linear({C}, 3 * {C})", skips=True),
        Op("position encoding and perceptron", "product", "mix",
           "encoded = torch.cat([torch.sin(positions * math.pi), torch.cos(positions * math.pi)], dim=-1)\n"
           "x = self.mlp(torch.cat([x, encoded], dim=-1))",
           "self.mlp = nn.Linear({C} + 6, {K})", "B P K", new="K=channels", inputs="positions=randn(B, P, 3)"),
        Op("perceptron on each point and the maximum of all", "product", "mix",
           "x = self.mlp(torch.cat([x, x.amax(dim=1, keepdim=True).expand_as(x)], dim=-1))",
           "self.mlp = nn.Linear(2 * {C}, {K})", "B P K", new="K=channels", weight=1.5),
    ],
    "norm": [
        Op("layer norm", "normalisation", "norm", "x = self.norm(x)", "self.norm = nn.LayerNorm({C})", weight=2),
        Op("batch norm over points", "normalisation", "norm", "x = self.bn(x.transpose(1, 2)).transpose(1, 2)",
           "self.bn = nn.BatchNorm1d({C})", weight=2),
        Op("centring on the mean point", "normalisation", "norm", "x = x - x.mean(dim=1, keepdim=True)"),
    ],
    "act": [],
    "join": [
        Op("occupancy mask", "several inputs", "join", "x = x * mask.unsqueeze(-1)", inputs="mask=mask(B, P)"),
    ],
    "head": [
        Op("maximum over points", "reduction", "head", "x = x.amax(dim=1)", shape="B C", to="rows", weight=2),
        Op("mean over points", "reduction", "head", "x = x.mean(dim=1)", shape="B C", to="rows"),
        Op("volume rendering", "scan", "head",
           "alpha = 1 - torch.exp(-F.softplus(self.density(x)) * (4.0 / x.shape[1]))\n"
           "transmittance = torch.cumprod(torch.cat([torch.ones_like(alpha[:, :1]), 1 - alpha[:, :-1] + 1e-6], dim=1), dim=1)\n"
           "x = (alpha * transmittance * torch.sigmoid(x)).sum(dim=1)", "self.density = nn.Linear({C}, 1)", "B C", "rows",
           weight=1.5),
        Op("attention pooling", "reduction", "head", "weights = F.softmax(self.score(x), dim=1)\nx = (weights * x).sum(dim=1)",
           "self.score = nn.Linear({C}, 1)", "B C", "rows"),
    ],
}
