import os
import time

import torch
import torch.distributed as dist


def init_dist(local_rank: int, num_local_ranks: int):
    num_nodes, node_rank = int(os.getenv('WORLD_SIZE', 1)), int(os.getenv('RANK', 0))
    on_gpu = torch.cuda.device_count() >= num_local_ranks
    params = {
        'backend': 'nccl' if on_gpu else 'gloo',
        'init_method': f'tcp://{os.getenv("MASTER_ADDR", "127.0.0.1")}:{os.getenv("MASTER_PORT", "8361")}',
        'world_size': num_nodes * num_local_ranks,
        'rank': node_rank * num_local_ranks + local_rank,
    }
    dist.init_process_group(**params)
    if on_gpu:
        torch.cuda.set_device(local_rank)
        torch.set_default_tensor_type(torch.cuda.FloatTensor)
    return dist.get_rank(), dist.get_world_size(), dist.new_group(list(range(params['world_size'])))


def bench(fn, num_tests: int = 5) -> float:
    fn()
    start = time.perf_counter()
    for _ in range(num_tests):
        fn()
    return (time.perf_counter() - start) / num_tests
