/* The program `ecfs`: finds the verb and runs it. */
#include "tool.h"

#include "endpoint/endpoint.h"
#include "util/log.h"

#define FUSE_USE_VERSION 31
#include <fuse_lowlevel.h>
#include <isa-l.h>
#include <libssh2.h>
#include <sqlite3.h>
#include <stdio.h>
#include <string.h>

const Verb tool_verbs[] = {
    {"init", "ARCHIVE", "Makes an archive directory and marks its endpoints", verb_init},
    {"mount", "ARCHIVE MOUNTPOINT", "Mounts an archive as a directory", verb_mount},
    {"umount", "MOUNTPOINT", "Stores what is staged, then unmounts", verb_umount},
    {"put", "ARCHIVE FILE... PATH", "Stores files and directories", verb_put},
    {"get", "ARCHIVE PATH... DIR", "Fetches files and directories", verb_get},
    {"ls", "ARCHIVE [PATH...]", "Lists names in an archive", verb_ls},
    {"info", "ARCHIVE PATH...", "Tells how files are stored, stripe by stripe", verb_info},
    {"status", "ARCHIVE", "Tells the state of endpoints, objects and staging", verb_status},
    {"wait", "ARCHIVE [PATH...]", "Waits until what was written is stored", verb_wait},
    {"endpoint", "list|add|test|readonly|active|drain|replace|remove ARCHIVE ...",
     "Lists, adds, tests, empties, replaces and removes endpoints", verb_endpoint},
    {"plan", "", "Tells what codes buy: failure, space, repair", verb_plan},
    {"recode", "ARCHIVE PATH", "Moves stored files to another code", verb_recode},
    {"export", "ARCHIVE PATH", "Prints the descriptor of a stored file", verb_export},
    {"fetch", "DESCRIPTOR FILE", "Fetches what a descriptor describes, without its archive", verb_fetch},
    {"recover", "ARCHIVE --endpoint URL...", "Makes an archive directory anew from its endpoints", verb_recover},
    {"drill", "ARCHIVE", "Rehearses the loss of endpoints", verb_drill},
    {"sim", "SCENARIO", "Simulates reading, or failure and repair over years", verb_sim},
    {"tune", "ARCHIVE", "Measures endpoints and machine, and proposes settings", verb_tune},
    {"bench", "codec [CODE...]", "Measures how fast codes are on this machine", verb_bench},
    {NULL, NULL, NULL, NULL},
};

static void print_usage (FILE *to)
{
    fputs ("Usage: ecfs VERB [OPTION...] ARCHIVE ...\n\nVerbs:\n", to);
    for (const Verb *verb = tool_verbs; verb->name != NULL; verb++)
        fprintf (to, "  %-10s%s\n", verb->name, verb->summary);
    fputs ("\necfs VERB --help explains a verb, ecfs --version says what is compiled in; see also ecfs(1).\n", to);
}

static void print_version (void)
{
    printf ("ecfs %s\n", ECFS_VERSION);
    g_autofree char *schemes = g_strjoinv (", ", (char **) ecfs_endpoint_schemes ());
    g_autofree char *absent = g_strjoinv (", ", (char **) ecfs_endpoint_absent_schemes ());
    printf ("endpoints  %s%s%s\n", schemes, *absent != '\0' ? "; built without " : "", absent);
    printf ("SSH        libssh2 %s\n", libssh2_version (0));
    printf ("codes      rs (ISA-L %d.%d.%d), ldpc, basic, copies\n", ISAL_MAJOR_VERSION, ISAL_MINOR_VERSION,
            ISAL_PATCH_VERSION);
    printf ("catalog    SQLite %s\n", sqlite3_libversion ());
    printf ("mount      FUSE %s\n", fuse_pkgversion ());
}

int main (int argc, char **argv)
{
    const char *name = argc > 1 ? argv[1] : "";
    g_autofree char *program = g_path_get_basename (argv[0]);
    /* Verbs tell what became of their work themselves; a mount, which runs for long, tells more. */
    ecfs_log_init (false, G_LOG_LEVEL_WARNING);
    if (g_str_has_prefix (program, "mount."))
        return tool_mount_helper (program, argc, argv);
    if (g_str_has_prefix (program, "umount."))
        return tool_umount_helper (program, argc, argv);
    if (strcmp (name, "--version") == 0) {
        print_version ();
        return TOOL_DONE;
    }
    if (strcmp (name, "--help") == 0 || strcmp (name, "-h") == 0 || strcmp (name, "help") == 0) {
        print_usage (stdout);
        return TOOL_DONE;
    }
    for (const Verb *verb = tool_verbs; verb->name != NULL; verb++)
        if (strcmp (verb->name, name) == 0)
            return verb->run (verb, argc - 1, argv + 1);
    if (argc > 1)
        fprintf (stderr, "ecfs: unknown verb \"%s\"\n", name);
    print_usage (stderr);
    return TOOL_USAGE;
}
