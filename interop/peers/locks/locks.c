/* A library to be preloaded into a program. It counts the program's locks and the waits and signals of its
 * condition variables, as far as they use the C library's functions. At the program's end it writes
 * "LOCKS CONDITIONS" into the file that CORELANE_LOCKS names.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static atomic_ulong locks, conditions;

/* Declares `next`, a pointer to the C library's function `name`, which is looked up once. */
#define NEXT(result, name, parameters)                              \
  static result(*_Atomic next) parameters;                          \
  result(*call) parameters = next;                                  \
  if (!call) next = call = (result(*) parameters)dlsym(RTLD_NEXT, name)

static int taken(int result) {
  if (result == 0) atomic_fetch_add_explicit(&locks, 1, memory_order_relaxed);
  return result;
}

int pthread_mutex_lock(pthread_mutex_t *mutex) {
  NEXT(int, "pthread_mutex_lock", (pthread_mutex_t *));
  return taken(call(mutex));
}

int pthread_mutex_trylock(pthread_mutex_t *mutex) {
  NEXT(int, "pthread_mutex_trylock", (pthread_mutex_t *));
  return taken(call(mutex));
}

int pthread_rwlock_rdlock(pthread_rwlock_t *lock) {
  NEXT(int, "pthread_rwlock_rdlock", (pthread_rwlock_t *));
  return taken(call(lock));
}

int pthread_rwlock_wrlock(pthread_rwlock_t *lock) {
  NEXT(int, "pthread_rwlock_wrlock", (pthread_rwlock_t *));
  return taken(call(lock));
}

/* Counts a wait. Also counts one lock, because the C library takes the mutex again when the wait
 * ends. */
int pthread_cond_wait(pthread_cond_t *condition, pthread_mutex_t *mutex) {
  NEXT(int, "pthread_cond_wait", (pthread_cond_t *, pthread_mutex_t *));
  atomic_fetch_add_explicit(&conditions, 1, memory_order_relaxed);
  return taken(call(condition, mutex));
}

int pthread_cond_timedwait(pthread_cond_t *condition, pthread_mutex_t *mutex, const struct timespec *until) {
  NEXT(int, "pthread_cond_timedwait", (pthread_cond_t *, pthread_mutex_t *, const struct timespec *));
  atomic_fetch_add_explicit(&conditions, 1, memory_order_relaxed);
  return taken(call(condition, mutex, until));
}

int pthread_cond_signal(pthread_cond_t *condition) {
  NEXT(int, "pthread_cond_signal", (pthread_cond_t *));
  atomic_fetch_add_explicit(&conditions, 1, memory_order_relaxed);
  return call(condition);
}

int pthread_cond_broadcast(pthread_cond_t *condition) {
  NEXT(int, "pthread_cond_broadcast", (pthread_cond_t *));
  atomic_fetch_add_explicit(&conditions, 1, memory_order_relaxed);
  return call(condition);
}

__attribute__((destructor)) static void tell(void) {
  const char *name = getenv("CORELANE_LOCKS");
  FILE *file = name ? fopen(name, "w") : NULL;
  if (!file) return;
  fprintf(file, "%lu %lu\n", atomic_load(&locks), atomic_load(&conditions));
  fclose(file);
}
