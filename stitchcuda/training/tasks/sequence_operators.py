"""Lists the operators on sequences (batch, length, features): transformers, recurrent and state-space layers, pooling, losses.

Where to look next: `training/tasks/operators.py` (what the fields mean).
"""

from __future__ import annotations

from stitchcuda.training.tasks.operators import Operator as Op

_QKV = "self.qkv = nn.Linear({D}, 3 * {D})\nself.num_heads = {A}\nself.proj = nn.Linear({D}, {D})"
_SPLIT = (
    "b, n, d = x.shape\nq, k, v = self.qkv(x).view(b, n, 3, self.num_heads, d // self.num_heads).permute(2, 0, 3, 1, "
    "4).unbind(0)\n"
)
_SCORES = _SPLIT + "scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])\n"
_JOIN = "x = x + self.proj(y.transpose(1, 2).reshape(b, n, d))"
_POSITIONS = "positions = torch.arange(n, device=x.device)\n"


def _attention(name: str, forward: str, init: str = "", inputs: str = "", weight: float = 1.0) -> Op:
    """Attention within a residual: without it, all that tells one of many random tokens from another is gone."""
    return Op(
        name, "attention", "mix", forward + _JOIN, _QKV + init, new="A=num_heads", inputs=inputs, weight=weight, skips=True
    )


MIX = [
    Op("linear layer", "product", "mix", "x = self.fc(x)", "self.fc = nn.Linear({D}, {E})", "B L E", new="E=embed_dim",
       weight=3),
    Op("linear layer without bias", "product", "mix", "x = self.fc(x)", "self.fc = nn.Linear({D}, {E}, bias=False)", "B L E",
       new="E=embed_dim"),
    Op("feed-forward block", "product", "mix", "x = self.down(F.gelu(self.up(x)))",
       "self.up = nn.Linear({D}, {H})\nself.down = nn.Linear({H}, {D})", new="H=hidden_dim", weight=2),
    Op("squared ReLU feed-forward block", "product", "mix", "x = self.down(torch.square(F.relu(self.up(x))))",
       "self.up = nn.Linear({D}, {H}, bias=False)\nself.down = nn.Linear({H}, {D}, bias=False)", new="H=hidden_dim"),
    Op("SwiGLU feed-forward block", "product", "mix", "x = self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))",
       "self.gate_proj = nn.Linear({D}, {H}, bias=False)\nself.up_proj = nn.Linear({D}, {H}, bias=False)\n"
       "self.down_proj = nn.Linear({H}, {D}, bias=False)", new="H=hidden_dim", weight=2),
    Op("GEGLU feed-forward block", "product", "mix",
       "gate, value = self.up(x).chunk(2, dim=-1)\nx = self.down(F.gelu(gate) * value)",
       "self.up = nn.Linear({D}, 2 * {H})\nself.down = nn.Linear({H}, {D})", new="H=hidden_dim"),
    Op("token-mixing layer", "product", "mix", "x = self.token_mix(x.transpose(1, 2)).transpose(1, 2)",
       "self.token_mix = nn.Linear({L}, {L})"),
    Op("dense mixture of experts", "product", "mix",
       "weights = F.softmax(self.router(x), dim=-1)\nexperts = torch.einsum('bld,nde->blne', x, self.experts)\n"
       "x = (experts * weights.unsqueeze(-1)).sum(dim=2)",
       "self.router = nn.Linear({D}, {N})\nself.experts = nn.Parameter(torch.randn({N}, {D}, {E}) * 0.05)", "B L E",
       new="N=num_experts E=embed_dim"),
    Op("block-diagonal linear layer", "product", "mix",
       "b, n, d = x.shape\nx = torch.einsum('blhi,hij->blhj', x.view(b, n, self.num_blocks, -1), self.blocks).reshape(b, n, d)",
       "self.num_blocks = {A}\nself.blocks = nn.Parameter(torch.randn({A}, {D} // {A}, {D} // {A}) * 0.1)", new="A=num_heads"),
    Op("highway gate", "product", "mix",
       "gate = torch.sigmoid(self.gate(x))\nx = gate * F.relu(self.transform(x)) + (1 - gate) * x",
       "self.gate = nn.Linear({D}, {D})\nself.transform = nn.Linear({D}, {D})", skips=True),
    Op("exponential decay mixing", "product", "mix",
       "steps = torch.arange(x.shape[1], device=x.device)\ndistance = (steps[:, None] - steps[None, :]).clamp(min=0)\n"
       "decay = torch.tril(torch.sigmoid(self.decay) ** distance)\nx = decay @ x",
       "self.decay = nn.Parameter(torch.tensor(1.5))", affine=True),
    Op("causal depthwise convolution", "convolution", "mix",
       "x = self.conv(x.transpose(1, 2))[..., : x.shape[1]].transpose(1, 2)",
       "self.conv = nn.Conv1d({D}, {D}, kernel_size=4, padding=3, groups={D})", weight=2),
    Op("gated scan in log space", "scan", "mix",
       "gate, hidden = self.to_gates(x).chunk(2, dim=-1)\nlog_keep = torch.cumsum(-F.softplus(gate), dim=1)\n"
       "log_value = -F.softplus(-gate) + F.logsigmoid(hidden)\n"
       "x = torch.exp(log_keep + torch.logcumsumexp(log_value - log_keep, dim=1))",
       "self.to_gates = nn.Linear({D}, 2 * {D})", weight=2.5),
    Op("cumulative sum of deviations", "scan", "mix",
       "x = torch.cumsum(x - x.mean(dim=1, keepdim=True), dim=1) / math.sqrt(x.shape[1])", weight=2, first=True),
    Op("cumulative decay", "scan", "mix", "x = self.value(x) * torch.cumprod(torch.sigmoid(self.decay(x) + 8.0), dim=1)",
       "self.value = nn.Linear({D}, {D})\nself.decay = nn.Linear({D}, {D})", weight=0.5),
    _attention("multi-head self-attention", _SPLIT + "y = F.scaled_dot_product_attention(q, k, v)\n", weight=2),
    _attention("causal self-attention", _SPLIT + "y = F.scaled_dot_product_attention(q, k, v, is_causal=True)\n", weight=2),
    _attention("self-attention with an explicit softmax", _SCORES + "y = F.softmax(scores, dim=-1) @ v\n"),
    _attention("causal self-attention with an explicit mask",
               _SCORES + "mask = torch.ones(n, n, dtype=torch.bool, device=x.device).tril()\n"
               "y = F.softmax(scores.masked_fill(~mask, float('-inf')), dim=-1) @ v\n"),
    _attention("sliding-window attention",
               _SCORES + _POSITIONS + "near = (positions[:, None] - positions[None, :]).abs() <= 4\n"
               "y = F.softmax(scores.masked_fill(~near, float('-inf')), dim=-1) @ v\n"),
    _attention("attention with linear biases",
               _SCORES + _POSITIONS + "distance = (positions[None, :] - positions[:, None]).abs()\n"
               "scores = scores - self.slopes.view(-1, 1, 1) * distance\ny = F.softmax(scores, dim=-1) @ v\n",
               "\nself.register_buffer('slopes', 2.0 ** -torch.arange(1, {A} + 1).float())"),
    _attention("attention with a learnt position bias", _SCORES + "y = F.softmax(scores + self.bias, dim=-1) @ v\n",
               "\nself.bias = nn.Parameter(torch.randn({A}, {L}, {L}) * 0.1)"),
    _attention("attention with soft-capped scores", _SCORES + "y = F.softmax(20.0 * torch.tanh(scores / 20.0), dim=-1) @ v\n"),
    _attention("sigmoid attention", _SCORES + "y = torch.sigmoid(scores - math.log(n)) @ v\n"),
    _attention("ReLU attention", _SCORES + "y = F.relu(scores) / n @ v\n", weight=0.5),
    _attention("cosine attention with a learnt temperature",
               _SPLIT + "scores = F.normalize(q, dim=-1) @ F.normalize(k, dim=-1).transpose(-2, -1)\n"
               "y = F.softmax(scores * self.temperature, dim=-1) @ v\n",
               "\nself.temperature = nn.Parameter(torch.full(({A}, 1, 1), 10.0))"),
    _attention("linear attention",
               _SPLIT + "q, k = F.elu(q) + 1, F.elu(k) + 1\nstate = k.transpose(-2, -1) @ v\n"
               "y = (q @ state) / (q @ k.sum(dim=2).unsqueeze(-1))\n", weight=1.5),
    _attention("attention with normalised queries and keys",
               _SPLIT + "y = F.scaled_dot_product_attention(self.q_norm(q), self.k_norm(k), v)\n",
               "\nself.q_norm = nn.LayerNorm({D} // {A})\nself.k_norm = nn.LayerNorm({D} // {A})"),
    _attention("rotary self-attention",
               _SPLIT + "angles = torch.outer(torch.arange(n, device=x.device).float(), self.inv_freq)\n"
               "cos, sin = torch.cat([angles, angles], -1).cos(), torch.cat([angles, angles], -1).sin()\n"
               "q1, q2 = q.chunk(2, dim=-1)\nk1, k2 = k.chunk(2, dim=-1)\n"
               "q = q * cos + torch.cat([-q2, q1], dim=-1) * sin\nk = k * cos + torch.cat([-k2, k1], dim=-1) * sin\n"
               "y = F.scaled_dot_product_attention(q, k, v, is_causal=True)\n",
               "\nhalf = {D} // {A} // 2\nself.register_buffer('inv_freq', 10000.0 ** (-torch.arange(half).float() / half))",
               weight=1.5),
    _attention("retention with exponential decay",
               _SPLIT + _POSITIONS + "distance = (positions[:, None] - positions[None, :]).clamp(min=0)\n"
               "decay = torch.tril(torch.sigmoid(self.decay).view(-1, 1, 1) ** distance)\n"
               "y = (q @ k.transpose(-2, -1) * decay / math.sqrt(q.shape[-1])) @ v\n",
               "\nself.decay = nn.Parameter(torch.linspace(1.0, 4.0, {A}))"),
    _attention("self-attention with a padding mask",
               _SCORES + "scores = scores.masked_fill(~mask[:, None, None, :], -1e4)\ny = F.softmax(scores, dim=-1) @ v\n"
               "y = y * mask[:, None, :, None]\n", inputs="mask=mask(B, L)", weight=1.5),
    _attention("self-attention with a pair bias", _SCORES + "y = F.softmax(scores + pair_bias.unsqueeze(1), dim=-1) @ v\n",
               inputs="pair_bias=randn(B, L, L)"),
    Op("multi-query attention", "attention", "mix",
       "b, n, d = x.shape\nq = self.q_proj(x).view(b, n, self.num_heads, -1).transpose(1, 2)\n"
       "k, v = self.kv_proj(x).unsqueeze(1).chunk(2, dim=-1)\n"
       "y = F.softmax(q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1]), dim=-1) @ v\n" + _JOIN,
       "self.num_heads = {A}\nself.q_proj = nn.Linear({D}, {D})\nself.kv_proj = nn.Linear({D}, 2 * ({D} // {A}))\n"
       "self.proj = nn.Linear({D}, {D})", new="A=num_heads", skips=True),
    Op("grouped-query attention", "attention", "mix",
       "b, n, d = x.shape\nq = self.q_proj(x).view(b, n, self.num_heads, -1).transpose(1, 2)\n"
       "k = self.k_proj(x).view(b, n, self.num_heads // 2, -1).transpose(1, 2).repeat_interleave(2, dim=1)\n"
       "v = self.v_proj(x).view(b, n, self.num_heads // 2, -1).transpose(1, 2).repeat_interleave(2, dim=1)\n"
       "y = F.scaled_dot_product_attention(q, k, v, is_causal=True)\n" + _JOIN,
       "self.num_heads = {A}\nself.q_proj = nn.Linear({D}, {D}, bias=False)\n"
       "self.k_proj = nn.Linear({D}, {D} // 2, bias=False)\n"
       "self.v_proj = nn.Linear({D}, {D} // 2, bias=False)\nself.proj = nn.Linear({D}, {D}, bias=False)", new="A=num_heads",
       skips=True),
    Op("cross-attention", "attention", "mix",
       "b, n, d = x.shape\nq = self.q_proj(x).view(b, n, self.num_heads, -1).transpose(1, 2)\n"
       "k, v = self.kv_proj(context).view(b, context.shape[1], 2, self.num_heads, -1).permute(2, 0, 3, 1, 4).unbind(0)\n"
       "y = F.scaled_dot_product_attention(q, k, v)\n" + _JOIN,
       "self.num_heads = {A}\nself.q_proj = nn.Linear({D}, {D})\nself.kv_proj = nn.Linear({K}, 2 * {D})\n"
       "self.proj = nn.Linear({D}, {D})", new="A=num_heads S=context_len K=embed_dim", inputs="context=randn(B, S, K)",
       weight=2, skips=True),
    Op("attention over a latent array", "attention", "mix",
       "k, v = self.kv(x).chunk(2, dim=-1)\n"
       "x = F.softmax(self.latents @ k.transpose(-2, -1), dim=-1) @ v",
       "self.latents = nn.Parameter(torch.randn({S}, {D}))\nself.kv = nn.Linear({D}, 2 * {D})", "B S D", new="S=context_len"),
]
NORM = [
    Op("layer norm", "normalisation", "norm", "x = self.norm(x)", "self.norm = nn.LayerNorm({D})", weight=3),
    Op("RMS norm", "normalisation", "norm", "x = x * torch.rsqrt(x.pow(2).mean(dim=-1, keepdim=True) + 1e-6) * self.scale",
       "self.scale = nn.Parameter(torch.ones({D}))", weight=3),
    Op("RMS norm module", "normalisation", "norm", "x = self.norm(x)", "self.norm = nn.RMSNorm({D}, eps=1e-6)"),
    Op("batch norm over features", "normalisation", "norm", "x = self.norm(x.transpose(1, 2)).transpose(1, 2)",
       "self.norm = nn.BatchNorm1d({D})"),
    Op("group norm over features", "normalisation", "norm", "x = self.norm(x.transpose(1, 2)).transpose(1, 2)",
       "self.norm = nn.GroupNorm(4, {D})", weight=0.7),
    Op("scale norm", "normalisation", "norm", "x = self.gain * F.normalize(x, dim=-1)",
       "self.gain = nn.Parameter(torch.tensor({D} ** 0.5))"),
    Op("instance standardisation over time", "normalisation", "norm",
       "x = (x - x.mean(dim=1, keepdim=True)) / (x.std(dim=1, keepdim=True) + 1e-5)"),
    Op("dynamic tanh", "element-wise", "norm", "x = torch.tanh(self.alpha * x) * self.scale + self.shift",
       "self.alpha = nn.Parameter(torch.tensor(0.5))\nself.scale = nn.Parameter(torch.ones({D}))\n"
       "self.shift = nn.Parameter(torch.zeros({D}))"),
    Op("adaptive layer norm", "normalisation", "norm",
       "shift, scale = self.modulation(F.silu(cond)).unsqueeze(1).chunk(2, dim=-1)\nx = self.norm(x) * (1 + scale) + shift",
       "self.norm = nn.LayerNorm({D}, elementwise_affine=False)\nself.modulation = nn.Linear({K}, 2 * {D})",
       new="K=cond_dim", inputs="cond=randn(B, K)", weight=2),
    Op("residual sum and layer norm", "normalisation", "norm", "x = self.norm(x + residual)", "self.norm = nn.LayerNorm({D})",
       inputs="residual=randn(B, L, D)", weight=2),
]
ACT = [Op("GLU", "element-wise", "act", "x = F.glu(x, dim=-1)", shape="B L D//2")]
JOIN = [
    Op("learnt position embedding", "element-wise", "join", "x = x + self.position",
       "self.position = nn.Parameter(torch.randn(1, {L}, {D}) * 0.3)", first=True),
    Op("sum with a skip connection", "several inputs", "join", "x = x + skip", inputs="skip=randn(B, L, D)"),
    Op("gate by a second sequence", "several inputs", "join", "x = x * torch.sigmoid(gate)", inputs="gate=randn(B, L, D)"),
    Op("gate computed from a second sequence", "several inputs", "join", "x = x * F.silu(self.gate_proj(other))",
       "self.gate_proj = nn.Linear({K}, {D})", new="K=embed_dim", inputs="other=randn(B, L, K)"),
    Op("feature-wise modulation", "several inputs", "join",
       "scale, shift = self.film(cond).unsqueeze(1).chunk(2, dim=-1)\nx = scale * x + shift",
       "self.film = nn.Linear({K}, 2 * {D})", new="K=cond_dim", inputs="cond=randn(B, K)"),
    Op("fusion of two sequences", "several inputs", "join", "x = self.fuse(torch.cat([x, other], dim=-1))",
       "self.fuse = nn.Linear({D} + {K}, {D})", new="K=embed_dim", inputs="other=randn(B, L, K)"),
    Op("padding mask", "several inputs", "join", "x = x.masked_fill(~mask.unsqueeze(-1), 0.0)", inputs="mask=mask(B, L)"),
    Op("scaled residual", "several inputs", "join", "x = residual + self.gamma * x",
       "self.gamma = nn.Parameter(torch.full(({D},), 0.5))", inputs="residual=randn(B, L, D)", affine=True),
    Op("token embedding lookup", "several inputs", "join", "x = x + self.embedding(tokens)",
       "self.embedding = nn.Embedding({V}, {D})", new="V=vocab_size", inputs="tokens=ints(V; B, L)", first=True),
    Op("gated blend of two sequences", "several inputs", "join",
       "gate = torch.sigmoid(self.gate(torch.cat([x, other], dim=-1)))\nx = torch.lerp(other, x, gate)",
       "self.gate = nn.Linear(2 * {D}, {D})", inputs="other=randn(B, L, D)"),
]
MOVE = [
    Op("merging of neighbouring tokens", "movement", "move", "b, n, d = x.shape\nx = self.merge(x.reshape(b, n // 2, 2 * d))",
       "self.merge = nn.Linear(2 * {D}, {E}, bias=False)", "B L//2 E", new="E=embed_dim"),
    Op("token shift", "movement", "move", "x = torch.lerp(x, F.pad(x, (0, 0, 1, -1)), self.shift_mix)",
       "self.shift_mix = nn.Parameter(torch.rand({D}))", weight=2),
    Op("average pooling over time", "reduction", "move", "x = F.avg_pool1d(x.transpose(1, 2), 2).transpose(1, 2)",
       shape="B L//2 D"),
    Op("gather of selected tokens", "movement", "move",
       "x = torch.gather(x, 1, index.unsqueeze(-1).expand(-1, -1, x.shape[-1]))",
       shape="B S D", new="S=context_len", inputs="index=ints(L; B, S)"),
]
HEAD = [
    Op("mean over time", "reduction", "head", "x = x.mean(dim=1)", shape="B D", to="rows", weight=2),
    Op("maximum over time", "reduction", "head", "x = x.amax(dim=1)", shape="B D", to="rows"),
    Op("attention pooling", "reduction", "head", "weights = F.softmax(self.score(x), dim=1)\nx = (weights * x).sum(dim=1)",
       "self.score = nn.Linear({D}, 1)", "B D", "rows", weight=2),
    Op("mean and deviation over time", "reduction", "head", "x = torch.cat([x.mean(dim=1), x.std(dim=1)], dim=-1)",
       shape="B 2*D", to="rows"),
    Op("masked mean over time", "reduction", "head",
       "weights = mask.unsqueeze(-1).to(x.dtype)\nx = (x * weights).sum(dim=1) / weights.sum(dim=1).clamp(min=1.0)",
       shape="B D", to="rows", inputs="mask=mask(B, L)", weight=2),
    Op("mean of the largest values", "reduction", "head", "x = x.topk(4, dim=1).values.mean(dim=1)", shape="B D", to="rows"),
    Op("generalised mean over time", "reduction", "head", "x = x.abs().clamp(min=1e-6).pow(3).mean(dim=1).pow(1.0 / 3.0)",
       shape="B D", to="rows"),
]
LOSS = [
    Op("cross-entropy over a vocabulary", "reduction", "loss",
       "logits = self.lm_head(x)\nx = F.cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction='none')",
       "self.lm_head = nn.Linear({D}, {V}, bias=False)", new="V=vocab_size", inputs="labels=ints(V; B, L)", weight=2),
    Op("mean squared error", "reduction", "loss", "x = F.mse_loss(x, target, reduction='none').mean(dim=-1)",
       inputs="target=randn(B, L, D)"),
    Op("smooth L1 loss", "reduction", "loss", "x = F.smooth_l1_loss(x, target, reduction='none').mean(dim=-1)",
       inputs="target=randn(B, L, D)"),
    Op("distillation by KL divergence", "reduction", "loss",
       "x = F.kl_div(F.log_softmax(x, dim=-1), F.log_softmax(teacher, dim=-1), reduction='none', log_target=True).sum(dim=-1)",
       inputs="teacher=randn(B, L, D)"),
    Op("log-probability of the targets", "reduction", "loss",
       "log_p = F.log_softmax(self.lm_head(x), dim=-1)\nx = log_p.gather(-1, labels.unsqueeze(-1)).squeeze(-1)",
       "self.lm_head = nn.Linear({D}, {V}, bias=False)", new="V=vocab_size", inputs="labels=ints(V; B, L)"),
    Op("softmax over features", "reduction", "loss", "x = F.softmax(x / 0.7, dim=-1)"),
]
