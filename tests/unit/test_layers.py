"""Linear layers: libraries agree, and the batch size changes nothing."""

import numpy as np
import pytest
import torch
from torch.nn import functional

from flyball.app.config import Compute, NetworkSettings
from flyball.app.core import NetworkShape
from flyball.app.learning.inference import Policy
from flyball.app.learning.network import init_policy
from flyball.app.learning.products import FEWEST, STEP, linear, packed, padded, same_sums

SIZES = (1, 2, 3, 4, 5, 17, 32, 33, 63, 64, 65, 200, 511)


@pytest.fixture(params=["MKL", "oneDNN"])
def library(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    chosen = getattr(torch.ops.mkldnn, "_linear_pointwise", None) if request.param == "oneDNN" else None
    if request.param == "oneDNN" and chosen is None:
        pytest.skip("this PyTorch has no oneDNN")
    monkeypatch.setattr("flyball.app.learning.products._ONEDNN", chosen)
    return request.param


@pytest.mark.usefixtures("library")
@pytest.mark.parametrize("rows", SIZES)
@pytest.mark.parametrize("biased", [True, False])
def test_it_is_the_product_whatever_the_strides(rows: int, biased: bool) -> None:
    numbers = torch.Generator().manual_seed(rows)
    inputs, weight = torch.randn(rows, 27, generator=numbers), torch.randn(12, 27, generator=numbers)
    bias = torch.randn(12, generator=numbers) if biased else None
    expected = inputs.double() @ weight.double().t() + (0 if bias is None else bias.double())
    with torch.no_grad():
        for a in (inputs, inputs.t().contiguous().t()):
            for b in (weight, weight.t().contiguous().t()):
                assert torch.allclose(linear(a, b, bias).double(), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("kind", [np.float32, np.uint8])
def test_network_output_does_not_depend_on_the_batch_size(library: str, kind: type) -> None:
    if library == "MKL" and torch.backends.cpu.get_cpu_capability() == "AVX512":
        pytest.skip("with AVX-512, MKL adds up in an order that depends on the number of rows: oneDNN is used there")
    settings = NetworkSettings()
    shape = NetworkShape(270, 52)
    policy = Policy(settings, shape, init_policy(settings, shape, seed=1))
    obs = (np.random.default_rng(2).random((512, 270)) * 3).astype(kind)
    together = policy.outputs(obs)
    for rows in SIZES:
        assert np.array_equal(policy.outputs(obs[:rows]), together[:rows])
        assert np.array_equal(policy.outputs(obs[-rows:]), together[-rows:])


@pytest.mark.parametrize("rows", [0, *SIZES])
def test_rows_of_zeros_are_added_and_nothing_is_changed(library: str, rows: int) -> None:
    features = torch.arange(rows * 3, dtype=torch.uint8).reshape(rows, 3)
    more = padded(features)
    assert more.dtype == torch.float32
    assert torch.equal(more[:rows], features.float())
    assert not more[rows:].any()
    assert len(more) == max(rows, FEWEST) if library == "MKL" else FEWEST <= len(more) < rows + STEP


def test_few_numbers_of_rows_are_met(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("flyball.app.learning.products._ONEDNN", functional.linear)
    met = {len(padded(torch.zeros(rows, 1))) for rows in range(1025)}
    assert met == {4, 8, 16, 32, *range(STEP, 1025, STEP)}


@pytest.mark.parametrize(("outputs", "inputs"), [(8, 126), (50, 256), (256, 768), (512, 512), (768, 1024), (33, 27)])
def test_layers_with_the_same_sums_have_equal_outputs(outputs: int, inputs: int) -> None:
    numbers = torch.Generator().manual_seed(1)
    features, weight = (torch.randn(rows, inputs, generator=numbers).bfloat16() for rows in (1024, outputs))
    layer = packed(weight, 256), torch.randn(outputs, generator=numbers).bfloat16()
    with torch.inference_mode():
        parts = torch.cat([linear(part, *layer) for part in features.split(256)])
        for rows in (512, 768, 1024):
            equal = torch.equal(linear(features[:rows], *layer), parts[:rows])
            assert equal or not same_sums(outputs, inputs, rows, 256)


@pytest.mark.skipif(torch.backends.cpu.get_cpu_capability() != "AVX512", reason="larger passes need AVX-512")
def test_large_batches_of_a_narrow_network_take_one_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    shape, rows = NetworkShape(20, 5), list[int]()
    settings = NetworkSettings(hidden=(16,))
    policy = Policy(settings, shape, init_policy(settings, shape, seed=1), Compute(precision="bfloat16"))
    assert all(same_sums(*size, 1024, 256) for size in ((16, 32), (6, 16)))  # too short to be divided

    def counting(features: torch.Tensor, *layer: torch.Tensor, **more: bool) -> torch.Tensor:
        rows.append(len(features))
        return linear(features, *layer, **more)

    monkeypatch.setattr("flyball.app.learning.inference.linear", counting)
    policy.outputs(np.ones((1790, 20), dtype=np.uint8))
    assert rows == [1024, 1024, 768, 768]


def test_order_of_sums_is_seen_where_it_differs(monkeypatch: pytest.MonkeyPatch) -> None:
    def halves_if_large(features: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, **_: object) -> torch.Tensor:
        parts = [features] if len(features) <= 256 else features.split(48, dim=1)
        columns = weight.split([part.shape[1] for part in parts], dim=1)
        sums = [part.float() @ column.float().t() for part, column in zip(parts, columns, strict=True)]
        return (sum(sums) + bias).bfloat16()

    monkeypatch.setattr("flyball.app.learning.products.packed", lambda weight, _rows: weight)
    monkeypatch.setattr("flyball.app.learning.products.linear", halves_if_large)
    monkeypatch.setattr("flyball.app.learning.products._AVX512", True)
    assert not same_sums(8, 256, 512, 256)
    assert same_sums(8, 256, 256, 128)
