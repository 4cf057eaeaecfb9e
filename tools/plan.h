/* What codes buy, for plan and for a sentence of init and info. */
#ifndef ECFS_TOOLS_PLAN_H
#define ECFS_TOOLS_PLAN_H

#include "ecfs/ecfs.h"

#include <json-glib/json-glib.h>

/* How often endpoints are there: one figure for all, or one for each. */
typedef struct PlanEndpoints {
    unsigned n; /* 1: for all, however many a code needs */
    double availability[ECFS_MAX_STRIPES];
} PlanEndpoints;

/* What endpoints ask for, and what is to be stored there. */
typedef struct PlanPrices {
    unsigned n; /* 0: nobody asks what it costs; 1: for all, however many a code needs */
    EcfsPrices prices[ECFS_MAX_STRIPES];
    uint64_t bytes, n_objects;
} PlanPrices;

typedef struct PlanRow {
    JsonObject *facts; /* of ecfs_plan (), with "costs" of ecfs_plan_cost () where that was asked for */
    const char *code;  /* borrowed from these */
    unsigned k, n, tolerance;
    bool modelled;         /* mds: there is no such code here */
    bool exact;            /* else the failure is an estimate, with an error */
    double failure, error; /* the probability that a file cannot be read */
    double reads;          /* f: stripes that a download in random order takes, over k */
    double repair;         /* bytes that are read for a lost one; NAN: not known */
    double formula;        /* failure by the formula of Gaidioz et al. for ldpc; NAN: it is another code */
} PlanRow;

void plan_row_free (PlanRow *self);
G_DEFINE_AUTOPTR_CLEANUP_FUNC (PlanRow, plan_row_free)

/** What @code buys; EINVAL when there is no such code, or it needs more endpoints than figures are given for. */
PlanRow *plan_row_new (const char *code, const PlanEndpoints *endpoints, GError **error);

/** Of k and m: rs (mds where rs has not so many stripes), ldpc, basic where it takes them, and copies. */
GPtrArray *plan_rows_of (unsigned k, unsigned m, const PlanEndpoints *endpoints, GError **error);

/** Of each family what takes the least space with k data stripes and can be read with a probability of @wanted. */
GPtrArray *plan_rows_for (unsigned k, double wanted, const PlanEndpoints *endpoints, GError **error);

/**
 * What gnuplot is told to draw failure against space with: all codes with k data stripes, and copies. EINVAL where
 * none ever fails. g_free ()
 */
char *plan_plot (unsigned k, unsigned most_m, const PlanEndpoints *endpoints, GError **error);

/* What the options say of prices; NULL: nothing. */
typedef struct PlanCostOptions {
    char *prices, *archive, *size;
    gint64 n_files;
} PlanCostOptions;

/** What they mean. @endpoints: there are as many where both are more than one. EINVAL: it makes no sense. */
bool plan_prices (const PlanCostOptions *options, const PlanEndpoints *endpoints, PlanPrices *ret_prices,
                  GError **error);
/** Adds to each of @rows what it costs. EINVAL: one needs more endpoints than prices are given for. */
bool plan_add_costs (const GPtrArray *rows, const PlanPrices *prices, GError **error);
/** Prints a table of it, with what its columns mean. */
void plan_print_costs (const GPtrArray *rows, const PlanPrices *prices);

/** Whether a sample shows only that the failure is less than failure + 2 error. */
bool plan_is_bound (const PlanRow *row);

/** For how long in a year a file cannot be read, for people; "< …" where it is a bound. g_free () */
char *plan_year (const PlanRow *row);

/** A sentence on how long files cannot be read in a year, with endpoints that are there 99% of the time; NULL: the
 * code is not known here. g_free () */
char *plan_sentence (const char *code);

#endif
