#include "ir/queues.h"

const ls_queues ls_queues_in_process = {"in process", LS_QUEUE_A_PEER_AND_DIRECTION, false, 32};
