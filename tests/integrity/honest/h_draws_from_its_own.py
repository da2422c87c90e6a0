# row: honest
# reference: calls/tanh_scale.py
# runs: both
# what: a generator of its own, and settings that are put back
# base: tanh_scale.py

class ModelNew(nn.Module):
    def forward(self, x, y):
        generator = torch.Generator(device=x.device)
        generator.manual_seed(1)
        noise = torch.rand(1, device=x.device, generator=generator)
        before = torch.get_default_dtype()
        torch.set_default_dtype(torch.float64)
        torch.set_default_dtype(before)
        with torch.inference_mode(False), torch.enable_grad():
            pass
        return *self.compute(x, y), None
