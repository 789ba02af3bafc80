#ifndef QUEUE_H
#define QUEUE_H

#include <stdint.h>

struct queue {
	uint32_t depth;
	uint32_t head;
	uint32_t tail;
	uint32_t done;
};

struct lane {
	struct queue send;
	struct queue recv;
	int peer;
};

#endif
