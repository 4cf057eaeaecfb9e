/*
 * Endpoints whose operations go wrong on command: flaw+sftp://… and flaw+file://… are what the rest of the URL says,
 * held by a driver that passes every operation on, in which what the rules of option flaws=PATH say goes wrong (see
 * flaws.h), and with logs=no none keeps logs. All other options are those of the endpoint within. tests/lab/ecfs-flawed
 * is ecfs with these schemes.
 */
#ifndef TESTS_LAB_FLAWED_H
#define TESTS_LAB_FLAWED_H

/** Makes the schemes known; before any endpoint is made. */
void flawed_register (void);

#endif
