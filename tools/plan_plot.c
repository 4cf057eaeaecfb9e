/* Failure against space, as figures 1 and 4 of Gaidioz, Koblitz and Santos 2006: their formulas, and beside them what
 * our codes' decodable sets give. */
#include "plan.h"

#include "plot.h"

#include <math.h>

#define MOST_COPIES 4

typedef struct Curve {
    const char *title;
    const char *style;
    GString *points;
} Curve;

static void add_point (Curve *curve, double space, double failure)
{
    char x[G_ASCII_DTOSTR_BUF_SIZE], y[G_ASCII_DTOSTR_BUF_SIZE];
    if (failure > 0)
        g_string_append_printf (curve->points, "%s %s\n", g_ascii_formatd (x, sizeof x, "%.6f", space),
                                g_ascii_formatd (y, sizeof y, "%.8e", failure));
}

static void add_code (Curve *exact, Curve *formula, const char *code, const PlanEndpoints *endpoints)
{
    g_autoptr (PlanRow) row = plan_row_new (code, endpoints, NULL);
    if (row == NULL)
        return; /* there is no such code */
    double space = (double) row->n / row->k;
    add_point (exact, space, row->failure);
    if (formula != NULL && !isnan (row->formula))
        add_point (formula, space, row->formula);
}

static char *draw (Curve *curves, size_t n_curves, const char *title, GError **error)
{
    g_autoptr (GString) data = g_string_new (NULL), plots = g_string_new (NULL);
    for (size_t i = 0; i < n_curves; i++) {
        if (curves[i].points->len > 0) {
            g_autofree char *name = tool_plot_quote (curves[i].title);
            g_string_append_printf (data, "$curve%zu << EOD\n%sEOD\n", i, curves[i].points->str);
            g_string_append_printf (plots, "%s$curve%zu with %s title %s", plots->len > 0 ? ", " : "plot ", i,
                                    curves[i].style, name);
        }
        g_string_free (curves[i].points, TRUE);
    }
    if (plots->len == 0) {
        g_set_error (error, ECFS_ERROR, EINVAL, "--plot: there is nothing to draw, as no code ever fails");
        return NULL;
    }
    g_autofree char *quoted = tool_plot_quote (title);
    return g_strdup_printf ("set title %s noenhanced\nset key noenhanced\nset logscale y\nset format y '10^{%%T}'\n"
                            "set xlabel 'bytes stored for each byte'\n"
                            "set ylabel 'probability that a file cannot be read'\n%s%s\n",
                            quoted, data->str, plots->str);
}

char *plan_plot (unsigned k, unsigned most_m, const PlanEndpoints *endpoints, GError **error)
{
    enum { COPIES, ANY, LDPC, PEELING, PAPER, BASIC, N_CURVES };
    Curve curves[N_CURVES] = {{"copies:S, exact and by formula", "linespoints pt 5", NULL},
                              {"rs:K+m, any K do, exact and by formula", "linespoints pt 7", NULL},
                              {"ldpc:K+m, exact, with elimination (ours)", "linespoints pt 9", NULL},
                              {"ldpc:K+m, exact, peeling alone", "linespoints pt 11", NULL},
                              {"ldpc:K+m, by the paper's formula with f", "linespoints pt 6 dt 2", NULL},
                              {"basic:K+K, exact", "points pt 13 ps 2", NULL}};
    for (size_t i = 0; i < N_CURVES; i++)
        curves[i].points = g_string_new (NULL);
    for (unsigned copies = 2; copies <= MOST_COPIES; copies++) {
        g_autofree char *code = g_strdup_printf ("copies:%u", copies);
        add_code (&curves[COPIES], NULL, code, endpoints);
    }
    for (unsigned m = 1; m <= most_m; m++) {
        g_autofree char *any = g_strdup_printf ("mds:%u+%u", k, m), *ldpc = g_strdup_printf ("ldpc:%u+%u", k, m);
        g_autofree char *peeling = g_strdup_printf ("peeling:%u+%u", k, m);
        add_code (&curves[ANY], NULL, any, endpoints);
        add_code (&curves[LDPC], &curves[PAPER], ldpc, endpoints);
        add_code (&curves[PEELING], NULL, peeling, endpoints);
    }
    g_autofree char *basic = g_strdup_printf ("basic:%u+%u", k, k);
    add_code (&curves[BASIC], NULL, basic, endpoints);
    g_autofree char *title = endpoints->n == 1 ? g_strdup_printf ("K = %u, endpoints that are there %g of the time", k,
                                                                  endpoints->availability[0])
                                               : g_strdup_printf ("K = %u, %u different endpoints", k, endpoints->n);
    return draw (curves, N_CURVES, title, error);
}
