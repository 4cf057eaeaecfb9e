/*
 * A model of an SFTP server that keeps logs, of which a script of any bytes says what it does and when: in what order
 * it serves requests and answers them, what fails, when it breaks off or talks nonsense. Whatever it does, what the
 * driver says to be durable is.
 */
#ifndef TESTS_ENDPOINT_SFTP_MODEL_H
#define TESTS_ENDPOINT_SFTP_MODEL_H

#include <stddef.h>
#include <stdint.h>

/* How a run ended. */
typedef struct SftpModelResult {
    int codes[2]; /* errno of each log */
    uint64_t durable[2];
    unsigned n_connections;
} SftpModelResult;

/** Keeps two logs at a server that follows @script; ends the program where that breaks a rule. */
SftpModelResult sftp_model_run (const uint8_t *script, size_t size);

#endif
