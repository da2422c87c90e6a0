import torch, torch.nn as nn


class Model(nn.Module):
    def forward(self, a, b):
        total, carry, digits = a + b, torch.zeros_like(a[:, 0]), []
        for place in range(a.shape[1]):
            s = total[:, place] + carry
            digits.append(s % 10)
            carry = s // 10
        return torch.stack([*digits, carry], 1)

def get_inputs():
    return [torch.randint(0, 10, (16, 96)), torch.randint(0, 10, (16, 96))]

def get_init_inputs():
    return []
