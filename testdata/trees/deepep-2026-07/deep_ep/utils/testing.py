import time


def bench(fn, num_tests: int = 5) -> float:
    fn()
    start = time.perf_counter()
    for _ in range(num_tests):
        fn()
    return (time.perf_counter() - start) / num_tests
