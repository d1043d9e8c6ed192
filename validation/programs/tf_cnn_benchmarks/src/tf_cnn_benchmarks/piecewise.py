"""The grammar of --piecewise_learning_rate_schedule."""

from tf_cnn_benchmarks.errors import BenchmarkError


def parse_piecewise(text: str) -> tuple[list[float], list[float]]:
    """Rates (n + 1) and the epochs (n, rising) between them, of 'LR0;E1;LR1;...;En;LRn'."""
    try:
        numbers = [float(part) for part in text.split(";")]
    except ValueError:
        numbers = []
    rates, epochs = numbers[0::2], numbers[1::2]
    if len(numbers) % 2 == 0 or any(b <= a for a, b in zip([0.0, *epochs], epochs, strict=False)):
        raise BenchmarkError(
            f"--piecewise_learning_rate_schedule='{text}' is not LR0;E1;LR1;...;En;LRn with rising epochs, "
            "such as 0.3;10;0.2;25;0.1"
        )
    return rates, epochs
