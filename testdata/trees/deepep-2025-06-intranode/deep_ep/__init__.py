from .buffer import Buffer
