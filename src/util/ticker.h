/*
 * A thread that looks at something now and then, until it is stopped.
 *
 * Life cycle: start () → nudge (), as often as wanted, from any thread → stop (), which frees it.
 */
#ifndef ECFS_UTIL_TICKER_H
#define ECFS_UTIL_TICKER_H

#include <stdint.h>

typedef struct EcfsTicker EcfsTicker;

/** Calls @tick at once, and then @period_us after it has returned. */
EcfsTicker *ecfs_ticker_start (int64_t period_us, void (*tick) (void *user), void *user);
/** Has @tick called once more without waiting for the period to pass. NULL is accepted. */
void ecfs_ticker_nudge (EcfsTicker *self);
/** Returns when @tick has returned for the last time. NULL is accepted. */
void ecfs_ticker_stop (EcfsTicker *self);

#endif
