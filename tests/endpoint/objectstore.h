/* An endpoint driver for tests: objectstore:///PATH, without rename and positional writes, dropping idle uploads. */
#ifndef TESTS_ENDPOINT_OBJECTSTORE_H
#define TESTS_ENDPOINT_OBJECTSTORE_H

/* An upload whose source has had nothing for so long fails with ENOTCONN. */
#define OBJECTSTORE_IDLE_US (5 * G_USEC_PER_SEC)

/** Makes the scheme known; before any endpoint is made. */
void objectstore_register (void);

#endif
