/* Part of tests in which no thread is made, so that ThreadSanitizer has nothing to see there: this makes sure of it. */
#include <glib.h>
#include <pthread.h>

int pthread_create (pthread_t *thread, const pthread_attr_t *attributes, void *(*run) (void *), void *user)
{
    g_error ("a thread is made: take this test out of single_threaded in tests/meson.build");
}
