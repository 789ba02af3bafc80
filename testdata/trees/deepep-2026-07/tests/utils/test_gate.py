import os
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
from deep_ep.utils.gate import get_topk


def test_topk_is_distinct():
    for row in get_topk(16, 8, 4).tolist():
        assert len(set(row)) == 4


if __name__ == '__main__':
    test_topk_is_distinct()
