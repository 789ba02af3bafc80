from .buffers.elastic import ElasticBuffer
from .buffers.legacy import Buffer
from .utils.envs import get_local_rank
