/*
 * exerciser: random operations on one file of a directory, which is compared with a model in memory after each.
 *
 *     exerciser [--seed N] [--operations N] [--save FILE] ... DIRECTORY
 *
 * Some stretches compare the whole file after every operation; others only what was touched, so that the page cache
 * holds some pages and not others. --save writes what the file must hold in the end, for who looks at it later.
 */
#include "exerciser.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define HISTORY       60
#define STRETCH       100 /* operations */
#define MORE_BYTES    (1u << 20)
#define PROGRESS_EACH 10000

static struct {
    gint64 seed;
    gint64 operations;
    gint64 largest;
    gint64 segment;
    gint64 rewrite_max;
    gboolean direct;
    gboolean forget;
    char *save;
} options = {.seed = -1, .operations = 1000, .largest = 2 << 20, .segment = 128 << 10};

static const GOptionEntry entries[] = {
    {"seed", 0, 0, G_OPTION_ARG_INT64, &options.seed, "Repeat a run", "N"},
    {"operations", 0, 0, G_OPTION_ARG_INT64, &options.operations, "How many", "N"},
    {"largest", 0, 0, G_OPTION_ARG_INT64, &options.largest, "How large the file becomes", "BYTES"},
    {"segment", 0, 0, G_OPTION_ARG_INT64, &options.segment, "Where edges are tried more often", "BYTES"},
    {"rewrite-max", 0, 0, G_OPTION_ARG_INT64, &options.rewrite_max, "Above it EFBIG is right", "BYTES"},
    {"direct", 0, 0, G_OPTION_ARG_NONE, &options.direct, "Use O_DIRECT, where alignment does not matter", NULL},
    {"forget", 0, 0, G_OPTION_ARG_NONE, &options.forget, "What the kernel has of the mounted DIRECTORY, now and then",
     NULL},
    {"save", 0, 0, G_OPTION_ARG_FILENAME, &options.save, "What the file must hold in the end", "FILE"},
    {NULL, 0, 0, G_OPTION_ARG_NONE, NULL, NULL, NULL}};

/* Failures and history */

void fail (Exerciser *self, const char *format, ...)
{
    va_list arguments;
    for (GList *l = self->history->head; l != NULL; l = l->next)
        fprintf (stderr, "%s\n", (const char *) l->data);
    fprintf (stderr, "%" PRIu64 " %s\nafter operation %" PRIu64 ", %s: ", self->n_done, self->what->str, self->n_done,
             self->path[self->name]);
    va_start (arguments, format);
    vfprintf (stderr, format, arguments);
    va_end (arguments);
    fprintf (stderr, "\n--seed %" G_GINT64_FORMAT " repeats it\n", options.seed);
    _exit (1); /* mappings and descriptors stay as they are */
}

void fail_errno (Exerciser *self, const char *call)
{
    fail (self, "%s: %s", call, g_strerror (errno));
}

void say (Exerciser *self, const char *format, ...)
{
    va_list arguments;
    va_start (arguments, format);
    g_string_append_vprintf (self->what, format, arguments);
    va_end (arguments);
}

static void remember (Exerciser *self)
{
    g_queue_push_tail (self->history, g_strdup_printf ("%" PRIu64 " %s", self->n_done, self->what->str));
    if (self->history->length > HISTORY)
        g_free (g_queue_pop_head (self->history));
    g_string_truncate (self->what, 0);
}

/* Chance */

size_t below (Exerciser *self, size_t end)
{
    return (size_t) g_rand_int_range (self->random, 0, (gint32) end);
}

bool chance (Exerciser *self, unsigned one_in)
{
    return below (self, one_in) == 0;
}

/* The run */

static void prepare (Exerciser *self, const char *directory)
{
    self->directory = directory;
    self->path[0] = g_build_filename (directory, "file", NULL);
    self->path[1] = g_build_filename (directory, "renamed", NULL);
    self->largest = (size_t) options.largest;
    self->segment = (size_t) options.segment;
    self->rewrite_max = (size_t) options.rewrite_max;
    self->direct = options.direct;
    self->forget = options.forget;
    self->random = g_rand_new_with_seed ((guint32) options.seed);
    self->model = g_malloc0 (self->largest);
    self->buffer = g_malloc0 (self->largest + MORE_BYTES);
    self->what = g_string_new (NULL);
    self->history = g_queue_new ();
    for (unsigned i = 0; i < N_HANDLES; i++)
        self->handles[i].fd = -1;
    int fd = open (self->path[0], O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    if (fd < 0)
        fail_errno (self, "creating the file");
    self->handles[0] = (Handle){.fd = fd, .flags = O_RDWR};
}

static void run (Exerciser *self)
{
    bool all = false;
    while (self->n_done < (uint64_t) options.operations) {
        if (self->n_done % STRETCH == 0)
            all = chance (self, 2);
        if (self->n_done % PROGRESS_EACH == 0 && self->n_done > 0)
            printf ("%" PRIu64 " operations agree\n", self->n_done);
        operate (self);
        check_size (self);
        if (all || self->n_done % STRETCH == STRETCH - 1) {
            check_all (self);
        } else if (self->touched.size > 0) {
            int fd = open (self->path[self->name], O_RDONLY | O_CLOEXEC);
            if (fd < 0)
                fail_errno (self, "open to compare");
            check_range (self, fd, self->touched, "comparing what was touched");
            (void) close (fd); /* only read */
        }
        self->touched.size = 0;
        remember (self);
        self->n_done++;
    }
    close_all (self);
    check_all (self);
}

static void clear (Exerciser *self)
{
    g_queue_free_full (self->history, g_free);
    g_string_free (self->what, TRUE);
    g_rand_free (self->random);
    g_free (self->buffer);
    g_free (self->model);
    g_free (self->path[0]);
    g_free (self->path[1]);
}

int main (int argc, char **argv)
{
    g_autoptr (GOptionContext) context = g_option_context_new ("DIRECTORY");
    g_autoptr (GError) error = NULL;
    g_option_context_add_main_entries (context, entries, NULL);
    if (!g_option_context_parse (context, &argc, &argv, &error) || argc != 2) {
        fprintf (stderr, "%s\n", error != NULL ? error->message : "one directory is needed");
        return 2;
    }
    if (options.seed < 0)
        options.seed = g_random_int ();
    setvbuf (stdout, NULL, _IOLBF, 0);
    printf ("--seed %" G_GINT64_FORMAT "\n", options.seed);
    Exerciser self = {0};
    prepare (&self, argv[1]);
    run (&self);
    if (options.save != NULL &&
        !g_file_set_contents (options.save, (const char *) self.model, (gssize) self.size, &error))
        fail (&self, "%s", error->message);
    printf ("%" PRIu64 " operations agree, the file %s has %zu bytes\n", self.n_done, self.path[self.name], self.size);
    clear (&self);
    g_free (options.save);
    return 0;
}
