#include "sim/sim_tool.h"

#include "plot.h"

#include <math.h>
#include <string.h>

static void add_reading (SimRow *row, const EcfsScenario *scenario, const EcfsSimResult *result)
{
    double content = (double) result->n_objects * scenario->object_bytes, us = (double) result->us;
    row->seconds += us / 1e6;
    row->deviation += us / 1e6 * us / 1e6;
    row->bytes_per_s += us > 0 ? content / us * 1e6 : 0;
    row->object_p50_s += (double) result->object_p50_us / 1e6;
    row->object_p95_s += (double) result->object_p95_us / 1e6;
    row->longest_wait_s = MAX (row->longest_wait_s, (double) result->longest_wait_us / 1e6);
    row->received += content > 0 ? (double) result->received_bytes / content : 0;
    row->extra += content > 0 ? (double) result->extra_bytes / content : 0;
    row->hedges += result->n_hedges;
    row->failed += (double) result->n_failed;
    row->objects += (double) result->n_objects;
    row->n_timed_out += result->timed_out;
}

static void finish_reading (SimRow *row)
{
    double n = row->n_runs, mean = row->seconds / n;
    row->deviation = n > 1 ? sqrt (MAX (row->deviation / n - mean * mean, 0) * n / (n - 1)) : 0;
    row->seconds = mean;
    row->bytes_per_s /= n;
    row->object_p50_s /= n;
    row->object_p95_s /= n;
    row->received /= n;
    row->extra /= n;
    row->hedges /= n;
}

static void add_lifetime (EcfsLifetime *sum, const EcfsLifetime *one, bool first)
{
    sum->n_lost += one->n_lost;
    sum->n_deaths += one->n_deaths;
    sum->n_disasters += one->n_disasters;
    sum->n_repairs += one->n_repairs;
    sum->n_unrepaired += one->n_unrepaired;
    sum->repair_bytes += one->repair_bytes;
    sum->longest_repair_days = MAX (sum->longest_repair_days, one->longest_repair_days);
    sum->least_guarantee = first ? one->least_guarantee : MIN (sum->least_guarantee, one->least_guarantee);
}

static bool run_once (const EcfsScenario *scenario, SimRow *row, GError **error)
{
    uint32_t seed = (uint32_t) scenario->seed + row->n_runs;
    if (scenario->is_lifetime) {
        EcfsLifetime lifetime;
        if (!ecfs_scenario_live (scenario, row->code, row->variant, seed, &lifetime, error))
            return false;
        add_lifetime (&row->lifetime, &lifetime, row->n_runs == 0);
    } else {
        EcfsSimResult result;
        if (!ecfs_scenario_read (scenario, row->code, row->variant, seed, &result, error))
            return false;
        add_reading (row, scenario, &result);
    }
    row->n_runs++;
    return true;
}

static bool begin_row (SimRow *row, const char *code, const char *variant, GError **error)
{
    g_autoptr (EcfsCodec) codec = ecfs_codec_new_modelled (code, error);
    if (codec == NULL)
        return false;
    *row = (SimRow){.code = code,
                    .variant = variant,
                    .k = ecfs_codec_k (codec),
                    .n = ecfs_codec_n (codec),
                    .modelled = ecfs_codec_is_modelled (codec)};
    return true;
}

GArray *sim_run_all (const EcfsScenario *scenario, void (*progress) (unsigned n_done, unsigned n_all), GError **error)
{
    char **variants = scenario->is_lifetime ? scenario->repair_bandwidths : scenario->policies;
    unsigned repeat = (unsigned) scenario->repeat, n_done = 0;
    unsigned n_all = g_strv_length (scenario->codes) * g_strv_length (variants) * repeat;
    g_autoptr (GArray) rows = g_array_new (FALSE, FALSE, sizeof (SimRow));
    for (char **code = scenario->codes; *code != NULL; code++)
        for (char **variant = variants; *variant != NULL; variant++) {
            SimRow row;
            if (!begin_row (&row, *code, *variant, error))
                return NULL;
            while (row.n_runs < repeat) {
                if (!run_once (scenario, &row, error))
                    return NULL;
                if (progress != NULL)
                    progress (++n_done, n_all);
            }
            if (!scenario->is_lifetime)
                finish_reading (&row);
            g_array_append_val (rows, row);
        }
    return g_steal_pointer (&rows);
}

bool sim_loss_rate (const EcfsScenario *scenario, const SimRow *row, double *ret_rate)
{
    double object_years = scenario->n_objects * scenario->years * row->n_runs;
    bool seen = row->lifetime.n_lost > 0;
    /* The rule of three, of what is lost together. */
    *ret_rate = (seen ? (double) row->lifetime.n_lost : 3 * scenario->stand_for) / object_years * 1e6;
    return seen;
}

/* Drawings */

static void number (GString *text, double value)
{
    char digits[G_ASCII_DTOSTR_BUF_SIZE];
    g_string_append_printf (text, " %s", g_ascii_formatd (digits, sizeof digits, "%.8g", value));
}

/* One curve: those rows of a code family, or code, that have the same policy; or the best of those that are not the
 * default. */
typedef struct Curve {
    char *title;
    GString *points;
} Curve;

static void curve_free (Curve *self)
{
    g_free (self->title);
    g_string_free (self->points, TRUE);
    g_free (self);
}

static Curve *curve_named (GPtrArray *curves, const char *title)
{
    for (guint i = 0; i < curves->len; i++)
        if (strcmp (((Curve *) g_ptr_array_index (curves, i))->title, title) == 0)
            return g_ptr_array_index (curves, i);
    Curve *curve = g_new (Curve, 1);
    *curve = (Curve){.title = g_strdup (title), .points = g_string_new (NULL)};
    g_ptr_array_add (curves, curve);
    return curve;
}

static void add_point (GPtrArray *curves, const char *title, double x, double y)
{
    GString *points = curve_named (curves, title)->points;
    number (points, x);
    number (points, y);
    g_string_append_c (points, '\n');
}

static bool is_default (const SimRow *row)
{
    return strcmp (row->variant, "default") == 0;
}

/* Whether no other row of this code, with a policy that is not the default, is faster. */
static bool is_best (const GArray *rows, const SimRow *row)
{
    for (guint i = 0; i < rows->len; i++) {
        const SimRow *other = &g_array_index (rows, SimRow, i);
        if (strcmp (other->code, row->code) == 0 && !is_default (other) && other->bytes_per_s > row->bytes_per_s)
            return false;
    }
    return !is_default (row);
}

static void add_reads (GPtrArray *curves, const GArray *rows)
{
    for (guint i = 0; i < rows->len; i++) {
        const SimRow *row = &g_array_index (rows, SimRow, i);
        bool best = is_best (rows, row);
        g_autofree char *family = g_strndup (row->code, strcspn (row->code, ":"));
        g_autofree char *title = g_strdup_printf ("%s, %s", family, best ? "best of the others" : "default policy");
        if (best || is_default (row))
            add_point (curves, title, row->k, row->bytes_per_s / 1e6);
    }
}

static void add_lives (GPtrArray *curves, const EcfsScenario *scenario, const GArray *rows)
{
    for (guint i = 0; i < rows->len; i++) {
        const SimRow *row = &g_array_index (rows, SimRow, i);
        double rate;
        (void) sim_loss_rate (scenario, row, &rate); /* a bound is drawn as well */
        add_point (curves, row->code, i % g_strv_length (scenario->repair_bandwidths) + 1, rate);
    }
}

char *sim_plot (const EcfsScenario *scenario, const GArray *rows)
{
    g_autoptr (GPtrArray) curves = g_ptr_array_new_with_free_func ((GDestroyNotify) curve_free);
    g_autoptr (GString) text = g_string_new ("set key outside below noenhanced\n");
    g_autofree char *title = tool_plot_quote (scenario->about == NULL ? "" : scenario->about);
    g_string_append_printf (text, "set title %s noenhanced\n", title);
    if (scenario->is_lifetime) {
        add_lives (curves, scenario, rows);
        g_string_append (text, "set logscale y\nset format y '10^{%T}'\nset xlabel 'bandwidth of repair'\n"
                               "set ylabel 'objects lost of 10^6 in a year'\nset xtics (");
        for (unsigned i = 0; scenario->repair_bandwidths[i] != NULL; i++) {
            g_autofree char *tic = tool_plot_quote (scenario->repair_bandwidths[i]);
            g_string_append_printf (text, "%s%s %u", i > 0 ? ", " : "", tic, i + 1);
        }
        g_string_append (text, ")\n");
    } else {
        add_reads (curves, rows);
        g_string_append (text, "set logscale x 2\nset yrange [0:]\nset xlabel 'data stripes'\nset ylabel 'MB/s'\n");
    }
    for (guint i = 0; i < curves->len; i++)
        g_string_append_printf (text, "$curve%u << EOD\n%sEOD\n", i,
                                ((const Curve *) g_ptr_array_index (curves, i))->points->str);
    for (guint i = 0; i < curves->len; i++) {
        g_autofree char *name = tool_plot_quote (((const Curve *) g_ptr_array_index (curves, i))->title);
        g_string_append_printf (text, "%s $curve%u with linespoints pt %u title %s", i == 0 ? "plot" : ",", i, i + 4,
                                name);
    }
    g_string_append_c (text, '\n');
    return g_string_free (g_steal_pointer (&text), FALSE);
}
