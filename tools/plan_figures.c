#include "plan.h"
#include "tool.h"

#include "codec/survival.h"

#include <math.h>
#include <string.h>

#define SEED      1
#define RS_MAX_N  32
#define YEAR_S    (365.25 * 86400)
#define USUAL     0.99 /* availability of an endpoint, for the sentence */
#define MOST_M(k) (3 * (k) + 8)

void plan_row_free (PlanRow *self)
{
    g_free (self->code);
    g_free (self);
}

double plan_formula (unsigned n, double needed, double availability)
{
    double low = floor (needed), sum[2] = {0};
    for (unsigned i = 0; i < n && i <= low; i++) {
        double choose = lgamma (n + 1.0) - lgamma (i + 1.0) - lgamma (n - i + 1.0);
        double term = exp (choose) * pow (availability, i) * pow (1 - availability, n - i);
        sum[1] += term;
        sum[0] += i < low ? term : 0;
    }
    if (needed <= low || sum[0] <= 0)
        return sum[0];
    return exp (log (sum[0]) + (needed - low) * (log (sum[1]) - log (sum[0])));
}

/* Stripes rotate over the endpoints from object to object: where there are more of these, every beginning counts,
 * and has its part of the sample. */
static void find_failure (PlanRow *row, const EcfsCodec *codec, const PlanEndpoints *endpoints)
{
    g_autofree EcfsSurvival *survival = g_new (EcfsSurvival, 1);
    double variance = 0;
    for (unsigned start = 0; start < endpoints->n; start++) {
        double availability[ECFS_CODEC_MAX_N];
        for (unsigned i = 0; i < row->n; i++)
            availability[i] = endpoints->availability[(start + i) % endpoints->n];
        ecfs_survival_count (codec, endpoints->n == 1 ? NULL : availability, ECFS_SURVIVAL_SAMPLED / endpoints->n,
                             SEED + start, survival);
        EcfsFailure failure = ecfs_survival_failure (survival, availability);
        row->failure += failure.probability / endpoints->n;
        variance += failure.error * failure.error;
    }
    row->error = sqrt (variance) / endpoints->n;
    row->exact = survival->exact;
}

PlanRow *plan_row_new (const char *code, const PlanEndpoints *endpoints, GError **error)
{
    g_autoptr (EcfsCodec) codec = ecfs_codec_new_modelled (code, error);
    if (codec == NULL)
        return NULL;
    g_autoptr (PlanRow) row = g_new0 (PlanRow, 1);
    row->code = g_strdup (ecfs_codec_code (codec));
    row->k = ecfs_codec_k (codec);
    row->n = ecfs_codec_n (codec);
    row->tolerance = ecfs_codec_tolerance (codec);
    row->modelled = ecfs_codec_is_modelled (codec);
    if (endpoints->n > 1 && endpoints->n < row->n) {
        g_set_error (error, ECFS_ERROR, EINVAL, "%s needs %u endpoints, and availabilities of %u are given", row->code,
                     row->n, endpoints->n);
        return NULL;
    }
    find_failure (row, codec, endpoints);
    row->reads = ecfs_codec_overhead (codec);
    row->repair = NAN;
    if (!row->modelled)
        row->repair = ecfs_survival_repair_reads (codec);
    else if (g_str_has_prefix (row->code, "mds:"))
        row->repair = row->k;
    bool ldpc = g_str_has_prefix (row->code, "ldpc:") || (row->modelled && !g_str_has_prefix (row->code, "mds:"));
    row->formula =
        ldpc && endpoints->n == 1 ? plan_formula (row->n, row->reads * row->k, endpoints->availability[0]) : NAN;
    return g_steal_pointer (&row);
}

static bool add_row (GPtrArray *rows, const PlanEndpoints *endpoints, GError **error, const char *format, ...)
    G_GNUC_PRINTF (4, 5);

/* Codes that cannot be are left out. */
static bool add_row (GPtrArray *rows, const PlanEndpoints *endpoints, GError **error, const char *format, ...)
{
    va_list args;
    va_start (args, format);
    g_autofree char *code = g_strdup_vprintf (format, args);
    va_end (args);
    g_autoptr (EcfsCodec) known = ecfs_codec_new_modelled (code, NULL);
    for (guint i = 0; i < rows->len; i++)
        if (strcmp (((const PlanRow *) g_ptr_array_index (rows, i))->code, code) == 0)
            return true;
    if (known == NULL)
        return true;
    PlanRow *row = plan_row_new (code, endpoints, error);
    if (row != NULL)
        g_ptr_array_add (rows, row);
    return row != NULL;
}

static GPtrArray *rows_new (void)
{
    return g_ptr_array_new_with_free_func ((GDestroyNotify) plan_row_free);
}

static const char *any_k (unsigned n)
{
    return n <= RS_MAX_N ? "rs" : "mds";
}

GPtrArray *plan_rows_of (unsigned k, unsigned m, const PlanEndpoints *endpoints, GError **error)
{
    g_autoptr (GPtrArray) rows = rows_new ();
    bool fits_basic = endpoints->n == 1 || endpoints->n >= 2 * k;
    if (!add_row (rows, endpoints, error, "%s:%u+%u", any_k (k + m), k, m) ||
        !add_row (rows, endpoints, error, "ldpc:%u+%u", k, m) ||
        (fits_basic && !add_row (rows, endpoints, error, "basic:%u+%u", k, k)))
        return NULL;
    for (unsigned copies = 2; copies <= 3; copies++)
        if ((endpoints->n == 1 || endpoints->n >= copies) && !add_row (rows, endpoints, error, "copies:%u", copies))
            return NULL;
    if (!add_row (rows, endpoints, error, "copies:%u", m + 1))
        return NULL;
    if (rows->len == 0 || strcmp (((PlanRow *) g_ptr_array_index (rows, 0))->code, "copies:2") == 0) {
        g_set_error (error, ECFS_ERROR, EINVAL, "there is no code with %u data and %u parity stripes", k, m);
        return NULL;
    }
    return g_steal_pointer (&rows);
}

static PlanRow *row_that_serves (const char *code, double wanted, const PlanEndpoints *endpoints)
{
    g_autoptr (PlanRow) row = plan_row_new (code, endpoints, NULL);
    return row != NULL && row->failure + 2 * row->error <= 1 - wanted ? g_steal_pointer (&row) : NULL;
}

/* The first of NAME:K+M, M rising, that serves; NULL: none does, or more endpoints would be needed. */
static PlanRow *first_that_serves (const char *name, unsigned k, double wanted, const PlanEndpoints *endpoints)
{
    PlanRow *row = NULL;
    for (unsigned m = 1; m <= MOST_M (k) && row == NULL; m++) {
        if (strcmp (name, "copies") == 0) {
            g_autofree char *copies = g_strdup_printf ("copies:%u", m + 1);
            row = row_that_serves (copies, wanted, endpoints);
            continue;
        }
        /* No code survives more than one of which any k stripes do, and that is counted at once. */
        g_autofree char *bound = g_strdup_printf ("mds:%u+%u", k, m);
        g_autoptr (PlanRow) best = row_that_serves (bound, wanted, endpoints);
        g_autofree char *code = g_strdup_printf ("%s:%u+%u", strcmp (name, "rs") == 0 ? any_k (k + m) : name, k, m);
        row = best == NULL ? NULL : row_that_serves (code, wanted, endpoints);
    }
    return row;
}

GPtrArray *plan_rows_for (unsigned k, double wanted, const PlanEndpoints *endpoints, GError **error)
{
    g_autoptr (GPtrArray) rows = rows_new ();
    for (const char *const *name = ecfs_codec_names (); *name != NULL; name++) {
        PlanRow *row = first_that_serves (*name, k, wanted, endpoints);
        if (row != NULL)
            g_ptr_array_add (rows, row);
    }
    if (rows->len == 0) {
        g_set_error (error, ECFS_ERROR, EINVAL,
                     "no code with %u data stripes can be read with this probability from these endpoints", k);
        return NULL;
    }
    return g_steal_pointer (&rows);
}

bool plan_is_bound (const PlanRow *row)
{
    return !row->exact && row->error > row->failure;
}

char *plan_year (const PlanRow *row)
{
    if (!plan_is_bound (row))
        return tool_seconds (row->failure * YEAR_S);
    g_autofree char *most = tool_seconds ((row->failure + 2 * row->error) * YEAR_S);
    return g_strdup_printf (*most == '<' ? "%s" : "< %s", most);
}

char *plan_sentence (const char *code)
{
    PlanEndpoints usual = {.n = 1, .availability = {USUAL}};
    g_autoptr (PlanRow) row = plan_row_new (code, &usual, NULL);
    if (row == NULL)
        return NULL;
    g_autofree char *year = plan_year (row), *single = tool_seconds ((1 - USUAL) * YEAR_S);
    return g_strdup_printf ("If each endpoint were away %.0f%% of the time, independently, a file could not be read "
                            "for %s a year; with one endpoint alone, for %s.",
                            100 * (1 - USUAL), year, single);
}
