#include "base/tally.h"

_Thread_local int64_t bk_tally_madds;
