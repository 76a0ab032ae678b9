// Pinning to a processor core.
#ifndef CORELANE_INTEROP_CORE_H
#define CORELANE_INTEROP_CORE_H

#include <sched.h>

/// Pins the process and all its future threads to a core. Returns false if the kernel refuses.
inline bool pin_to(int core) {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  CPU_SET(core, &cores);
  return sched_setaffinity(0, sizeof cores, &cores) == 0;
}

#endif
