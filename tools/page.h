/*
 * Pages for people: one HTML file that needs nothing else. No script, inline SVG, light and dark, for a phone, a screen
 * and paper. Whatever comes from outside (names of files and endpoints, what servers say) is text, never markup.
 */
#ifndef ECFS_PAGE_H
#define ECFS_PAGE_H

#include "tool.h"

/** Begins a page. g_string_free () */
GString *page_new (const char *title);
/** Ends it with when and by which command it was made, and writes it: beside the file first, then renamed. @page is
 * taken. */
bool page_write (GString *page, const char *command, const char *file, GError **error);

/** Adds what the format says; arguments for %s are escaped, the format is markup. */
void page_add (GString *page, const char *format, ...) G_GNUC_PRINTF (2, 3);

/** Adds a table of @cells, of which the first row has the titles; all columns but the first hold figures. A bar of
 * @parts[i] of its length, 0 to 1, ends row i below these; @bar is its title. */
void page_table (GString *page, const GPtrArray *cells, unsigned n_columns, const double *parts, const char *bar);

/** A time as people read it, and how long ago that is: "2026-11-27 02:00:11 (3 h ago)"; g_free () */
char *page_since (int64_t time_s);
/** "1 file", "2 files"; g_free () */
char *page_count (int64_t n, const char *one, const char *many);

#endif
