import torch, torch.nn as nn
class Model(nn.Module):
    """Twelve small facts on each row, by name."""
    def forward(self, x):
        top, at = x.max(dim=1)
        low, where = x.min(dim=1)
        return {
            "sum": x.sum(1), "mean": x.mean(1), "top": top, "low": low, "range": top - low, "at": at, "where": where,
            "first": x[:, 0].clone(), "last": x[:, -1].clone(), "l1": x.abs().sum(1), "energy": x.pow(2).sum(1), "positive": (x > 0).sum(1),
        }
def get_inputs():
    return [torch.randn(80, 210)]
def get_init_inputs():
    return []
