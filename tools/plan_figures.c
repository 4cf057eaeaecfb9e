#include "plan.h"
#include "tool.h"

#include <math.h>
#include <string.h>

#define RS_MAX_N  32
#define YEAR_S    (365.25 * 86400)
#define USUAL     0.99 /* availability of an endpoint, for the sentence */
#define MOST_M(k) (3 * (k) + 8)

void plan_row_free (PlanRow *self)
{
    json_object_unref (self->facts);
    g_free (self);
}

PlanRow *plan_row_new (const char *code, const PlanEndpoints *endpoints, GError **error)
{
    g_autofree char *text = ecfs_plan (code, endpoints->availability, endpoints->n, error);
    if (text == NULL)
        return NULL;
    JsonObject *facts = tool_json_object (text);
    PlanRow *row = g_new (PlanRow, 1);
    *row = (PlanRow){.facts = facts,
                     .code = tool_text (facts, "code"),
                     .k = (unsigned) tool_number (facts, "k"),
                     .n = (unsigned) (tool_number (facts, "k") + tool_number (facts, "m")),
                     .tolerance = (unsigned) tool_number (facts, "tolerance"),
                     .modelled = json_object_get_boolean_member (facts, "modelled"),
                     .exact = json_object_get_boolean_member (facts, "exact"),
                     .failure = tool_double (facts, "failure"),
                     .error = tool_double (facts, "failure_error"),
                     .reads = tool_double (facts, "f"),
                     .repair = json_object_get_double_member_with_default (facts, "repair_reads", NAN),
                     .formula = json_object_get_double_member_with_default (facts, "failure_by_formula", NAN)};
    return row;
}

static bool add_row (GPtrArray *rows, const PlanEndpoints *endpoints, unsigned n, GError **error, const char *format,
                     ...) G_GNUC_PRINTF (5, 6);

/* Of a code with @n stripes; one that cannot be is left out. */
static bool add_row (GPtrArray *rows, const PlanEndpoints *endpoints, unsigned n, GError **error, const char *format,
                     ...)
{
    va_list args;
    va_start (args, format);
    g_autofree char *code = g_strdup_vprintf (format, args);
    va_end (args);
    for (guint i = 0; i < rows->len; i++)
        if (strcmp (((const PlanRow *) g_ptr_array_index (rows, i))->code, code) == 0)
            return true;
    bool too_few = endpoints->n > 1 && endpoints->n < n;
    PlanRow *row = plan_row_new (code, endpoints, too_few ? error : NULL);
    if (row != NULL)
        g_ptr_array_add (rows, row);
    return row != NULL || !too_few;
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
    if (!add_row (rows, endpoints, k + m, error, "%s:%u+%u", any_k (k + m), k, m) ||
        !add_row (rows, endpoints, k + m, error, "ldpc:%u+%u", k, m) ||
        (fits_basic && !add_row (rows, endpoints, 2 * k, error, "basic:%u+%u", k, k)))
        return NULL;
    for (unsigned copies = 2; copies <= 3; copies++)
        if ((endpoints->n == 1 || endpoints->n >= copies) &&
            !add_row (rows, endpoints, copies, error, "copies:%u", copies))
            return NULL;
    if (!add_row (rows, endpoints, m + 1, error, "copies:%u", m + 1))
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
    g_autofree char *text = ecfs_features ();
    g_autoptr (JsonObject) features = tool_json_object (text);
    JsonArray *families = json_object_get_array_member (features, "codes");
    for (guint i = 0; i < json_array_get_length (families); i++) {
        PlanRow *row = first_that_serves (json_array_get_string_element (families, i), k, wanted, endpoints);
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
