/* top: a live view of a mount, on a terminal */
#include "top.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#define LOOK_US     G_USEC_PER_SEC /* between two questions to the mount, at least */
#define LOOK_MS     100            /* at keys and the size of the terminal */
#define WIDTH       80
#define LEAST_WIDTH 40
#define MOST_WIDTH  400

typedef struct Top {
    const Verb *verb;
    char *directory;
    TopView view;
    JsonObject *live, *before; /* owned */
    int64_t next_us;
    bool ends;
    bool changed; /* to be drawn anew */
} Top;

static struct termios old_terminal;
static bool terminal_is_ours;

/* Also when the process ends in any other way. */
static void give_back (void)
{
    if (!terminal_is_ours)
        return;
    terminal_is_ours = false;
    (void) tcsetattr (STDIN_FILENO, TCSAFLUSH, &old_terminal); /* else it is gone */
    fputs ("\033[?25h\033[?1049l", stdout);
    fflush (stdout);
}

/* No echo, no waiting for lines, another screen without a cursor. Signals stay keys' business: Ctrl-C ends it. */
static bool take_terminal (GError **error)
{
    struct termios raw;
    if (tcgetattr (STDIN_FILENO, &old_terminal) != 0)
        return tool_error (error, errno, "the terminal: %s", g_strerror (errno));
    raw = old_terminal;
    raw.c_lflag &= ~(tcflag_t) (ECHO | ICANON);
    raw.c_cc[VMIN] = 0;
    raw.c_cc[VTIME] = 0;
    if (tcsetattr (STDIN_FILENO, TCSAFLUSH, &raw) != 0)
        return tool_error (error, errno, "the terminal: %s", g_strerror (errno));
    terminal_is_ours = true;
    (void) atexit (give_back); /* fails where there are too many such functions, and this is the only one */
    fputs ("\033[?1049h\033[?25l", stdout);
    return true;
}

/* False: the mount did not answer. */
static bool look (Top *self, GError **error)
{
    g_autofree char *text = ecfs_live (self->directory, error);
    if (text == NULL)
        return false;
    g_clear_pointer (&self->before, json_object_unref);
    self->before = self->live;
    self->live = tool_json_object (text);
    self->next_us = g_get_monotonic_time () + LOOK_US;
    self->changed = true;
    return true;
}

static void draw (Top *self)
{
    g_autofree char *frame = top_frame (self->live, self->before, &self->view);
    g_auto (GStrv) lines = g_strsplit (frame, "\n", -1);
    fputs ("\033[H", stdout);
    for (char **line = lines; *line != NULL; line++)
        printf ("%s%s\033[K", line == lines ? "" : "\r\n", *line);
    fputs ("\033[J", stdout);
    fflush (stdout);
    self->changed = false;
}

static void measure (Top *self)
{
    struct winsize size = {.ws_col = 0};
    const TopView before = self->view;
    if (ioctl (STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) {
        self->view.width = CLAMP (size.ws_col, LEAST_WIDTH, MOST_WIDTH);
        self->view.height = MAX (size.ws_row, 2);
    }
    self->changed |= before.width != self->view.width || before.height != self->view.height;
}

static void obey (Top *self, char key)
{
    self->changed = true;
    switch (key) {
    case 'q':
    case 'Q':
        self->ends = true;
        break;
    case 'p':
    case ' ':
        self->view.paused = !self->view.paused;
        break;
    case 's':
        self->view.sort = (TopSort) ((self->view.sort + 1) % TOP_N_SORTS);
        break;
    case 'e':
        self->view.explain = !self->view.explain;
        break;
    default:
        break;
    }
}

static void hear_keys (Top *self)
{
    char keys[64];
    struct pollfd wait = {.fd = STDIN_FILENO, .events = POLLIN};
    if (poll (&wait, 1, LOOK_MS) <= 0)
        return;
    ssize_t n = read (STDIN_FILENO, keys, sizeof keys);
    self->ends |= n < 0 || (n == 0 && (wait.revents & POLLHUP)); /* the terminal is gone */
    if (n > 0 && keys[0] == '\033')                              /* an arrow or the like, which is none of ours */
        return;
    for (ssize_t i = 0; i < n; i++)
        obey (self, keys[i]);
}

static bool watch (Top *self, GError **error)
{
    tool_catch_interrupts ();
    while (!self->ends && !tool_is_interrupted ()) {
        measure (self);
        if (!self->view.paused && g_get_monotonic_time () >= self->next_us && !look (self, error))
            return false;
        if (self->changed)
            draw (self);
        hear_keys (self);
    }
    return true;
}

/* Two looks, so that there are rates. */
static bool show_once (Top *self, GError **error)
{
    if (!look (self, error))
        return false;
    g_usleep (LOOK_US);
    if (!look (self, error))
        return false;
    g_autofree char *frame = top_frame (self->live, self->before, &self->view);
    fputs (frame, stdout);
    return true;
}

static bool run_on_terminal (Top *self, GError **error)
{
    self->view.keys = true;
    self->view.colours = g_getenv ("NO_COLOR") == NULL;
    measure (self);
    bool good = look (self, error) && take_terminal (error) && watch (self, error);
    give_back ();
    return good;
}

/* As programs that use the terminal by hand are told it. */
static unsigned told_width (void)
{
    const char *text = g_getenv ("COLUMNS");
    guint64 width = WIDTH;
    if (text == NULL || !g_ascii_string_to_unsigned (text, 10, LEAST_WIDTH, MOST_WIDTH, &width, NULL))
        return WIDTH;
    return (unsigned) width;
}

int verb_top (const Verb *verb, int argc, char **argv)
{
    gboolean once = FALSE;
    const GOptionEntry options[] = {
        {"once", 0, 0, G_OPTION_ARG_NONE, &once, "Print what it would show after a second, and end", NULL},
        G_OPTION_ENTRY_NULL};
    (void) tool_parse (verb, options, argc, argv, 1, 1);
    if (!once && (!isatty (STDIN_FILENO) || !isatty (STDOUT_FILENO))) {
        tool_say (verb->name, "this is no terminal: --once prints one look");
        return TOOL_USAGE;
    }
    GError *error = NULL;
    Top self = {.verb = verb, .directory = tool_archive (argv[1]), .view = {.width = told_width ()}};
    bool good = once ? show_once (&self, &error) : run_on_terminal (&self, &error);
    if (!good && error->code == ENOTCONN)
        tool_say (verb->name, "%s is not mounted, so nothing goes on there: 'ecfs status' shows its state",
                  self.directory);
    int result = good ? TOOL_DONE : tool_fail (verb->name, error, TOOL_FAILED);
    g_clear_pointer (&self.live, json_object_unref);
    g_clear_pointer (&self.before, json_object_unref);
    g_free (self.directory);
    return result;
}
