/* How much fits: against trying every placement, and against filling up by the placement that is used. */
#include "object/capacity.h"
#include "object/placement.h"

#include <glib.h>
#include <string.h>

#define UNIT     1000 /* bytes of an object's stripe in counted cases */
#define MAX_LEFT 6

/* By counting */

typedef struct Case {
    unsigned n_rooms, n, per;
    unsigned device[5];
    unsigned left[5];                                                       /* units per device */
    signed char best[MAX_LEFT * MAX_LEFT * MAX_LEFT * MAX_LEFT * MAX_LEFT]; /* -1: not known */
} Case;

static int most_objects (Case *self);

/* Places what is left of one object's stripes on the rooms from @room on, in every way. */
static int try_rooms (Case *self, unsigned room, unsigned n_stripes)
{
    if (n_stripes == 0)
        return 1 + most_objects (self);
    int best = 0;
    unsigned *left = room < MIN (self->n_rooms, G_N_ELEMENTS (self->device)) ? &self->left[self->device[room]] : NULL;
    for (unsigned here = 0; left != NULL && here <= MIN (self->per, MIN (n_stripes, *left)); here++) {
        *left -= here;
        best = MAX (best, try_rooms (self, room + 1, n_stripes - here));
        *left += here;
    }
    return best;
}

static int most_objects (Case *self)
{
    unsigned state = 0;
    for (unsigned i = 0; i < self->n_rooms; i++)
        state = state * MAX_LEFT + self->left[i];
    if (self->best[state] < 0)
        self->best[state] = (signed char) try_rooms (self, 0, self->n);
    return self->best[state];
}

static void test_counted (gconstpointer shared)
{
    for (unsigned round = 0; round < 200; round++) {
        Case this = {.n_rooms = (unsigned) g_test_rand_int_range (1, 6),
                     .per = (unsigned) g_test_rand_int_range (1, 3)};
        EcfsRoom rooms[5];
        this.n = (unsigned) g_test_rand_int_range (1, (int) (this.n_rooms * this.per) + 2);
        memset (this.best, -1, sizeof this.best);
        for (unsigned i = 0; i < this.n_rooms; i++) {
            this.device[i] = shared != NULL ? (unsigned) g_test_rand_int_range (0, (int) this.n_rooms) : i;
            this.left[i] = (unsigned) g_test_rand_int_range (0, MAX_LEFT);
        }
        for (unsigned i = 0; i < this.n_rooms; i++) /* all in one zone: then zones bind nothing */
            rooms[i] = (EcfsRoom){.device = this.device[i], .free_bytes = (uint64_t) this.left[this.device[i]] * UNIT};
        double bytes = (double) ecfs_capacity (rooms, this.n_rooms, this.n, this.per), best = most_objects (&this);
        if (this.per == 1) /* doubling up is what placement avoids as long as it can */
            g_assert_cmpfloat (bytes, >=, best * UNIT * 0.97);
        g_assert_cmpfloat (bytes, <, (best + 1) * UNIT); /* counted are whole objects only */
    }
}

/* The largest x with Σ min (free, x) ≥ n·x. */
static double largest_x (const EcfsRoom *rooms, unsigned n_rooms, unsigned n)
{
    double low = 0, high = 1e15;
    for (unsigned step = 0; step < 100; step++) {
        double middle = (low + high) / 2, sum = 0;
        for (unsigned i = 0; i < n_rooms; i++)
            sum += MIN ((double) rooms[i].free_bytes, middle);
        *(sum >= n * middle ? &low : &high) = middle;
    }
    return low;
}

static void test_formula (void)
{
    for (unsigned round = 0; round < 150; round++) {
        EcfsRoom rooms[16];
        unsigned n_rooms = (unsigned) g_test_rand_int_range (1, 17);
        unsigned n = (unsigned) g_test_rand_int_range (1, (int) n_rooms + 1);
        for (unsigned i = 0; i < n_rooms; i++)
            rooms[i] = (EcfsRoom){.zone = i, .device = i, .free_bytes = UINT64_C (1) << g_test_rand_int_range (20, 45)};
        double bytes = (double) ecfs_capacity (rooms, n_rooms, n, 1), x = largest_x (rooms, n_rooms, n);
        g_assert_cmpfloat (bytes, <=, x * 1.001);
        g_assert_cmpfloat (bytes, >=, x * 0.97);
    }
}

/* By filling up */

#define N_MAX  12
#define STRIPE 1.0

typedef struct World {
    unsigned n_places, n, per;
    EcfsRoom rooms[N_MAX];
    double left[N_MAX]; /* per device */
} World;

static unsigned users_of (const World *self, unsigned device)
{
    unsigned n_users = 0;
    for (unsigned i = 0; i < self->n_places; i++)
        n_users += self->rooms[i].device == device;
    return n_users;
}

/* Objects placed one by one until one finds too few places that have room. */
static uint64_t fill_up (World *self)
{
    const bool wanted[N_MAX * 2] = {true, true, true, true, true, true, true, true, true, true, true, true,
                                    true, true, true, true, true, true, true, true, true, true, true, true};
    for (uint64_t n_objects = 0;; n_objects++) {
        EcfsPlace places[N_MAX];
        size_t found[N_MAX * 2];
        for (unsigned i = 0; i < self->n_places; i++) {
            double room = self->left[self->rooms[i].device] / users_of (self, self->rooms[i].device);
            places[i] = (EcfsPlace){
                .zone = self->rooms[i].zone, .usable = room >= STRIPE * self->per, .room = (uint64_t) MAX (room, 1)};
        }
        if (ecfs_place (places, self->n_places, wanted, self->n, self->per, g_test_rand_int (), found) > 0)
            return n_objects;
        for (unsigned i = 0; i < self->n; i++)
            self->left[self->rooms[found[i]].device] -= STRIPE;
    }
}

static World random_world (bool zones, bool devices)
{
    World world = {.n_places = (unsigned) g_test_rand_int_range (1, N_MAX + 1), .per = 1};
    world.n = (unsigned) g_test_rand_int_range (1, (int) world.n_places + 1);
    int n_zones = g_test_rand_int_range (1, (int) world.n_places + 1);
    int n_devices = g_test_rand_int_range (1, (int) world.n_places + 1);
    for (unsigned i = 0; i < world.n_places; i++) {
        world.left[i] = g_test_rand_int () % 4 == 0 ? g_test_rand_int_range (300, 8000) : 2000;
        world.rooms[i].zone = zones ? (unsigned) g_test_rand_int_range (0, n_zones) : i;
        world.rooms[i].device = devices ? (unsigned) g_test_rand_int_range (0, n_devices) : i;
    }
    for (unsigned i = 0; i < world.n_places; i++)
        world.rooms[i].free_bytes = (uint64_t) world.left[world.rooms[i].device];
    return world;
}

static void test_filling (gconstpointer what)
{
    double worst_over = 1, worst_under = 1;
    for (unsigned round = 0; round < 50; round++) {
        World world = random_world (strchr (what, 'z') != NULL, strchr (what, 'd') != NULL);
        double foretold = (double) ecfs_capacity (world.rooms, world.n_places, world.n, world.per);
        double found = (double) fill_up (&world);
        double ratio = (foretold + 1) / (found + 1);
        worst_over = MAX (worst_over, ratio);
        worst_under = MIN (worst_under, ratio);
    }
    g_test_message ("foretold to found: %.3f to %.3f", worst_under, worst_over);
    g_assert_cmpfloat (worst_over, <, 1.05);
    g_assert_cmpfloat (worst_under, >, 0.95);
}

/* Known cases */

static void test_edges (void)
{
    const EcfsRoom one = {.free_bytes = 1000};
    const EcfsRoom endless[2] = {{.free_bytes = UINT64_MAX}, {.zone = 1, .device = 1, .free_bytes = UINT64_MAX}};
    g_assert_cmpuint (ecfs_capacity (NULL, 0, 3, 1), ==, 0);
    g_assert_cmpuint (ecfs_capacity (&one, 1, 0, 1), ==, 0);
    g_assert_cmpuint (ecfs_capacity (&one, 1, 1, 1), ==, 1000);
    g_assert_cmpuint (ecfs_capacity (&one, 1, 2, 1), ==, 0);
    g_assert_cmpuint (ecfs_capacity (&one, 1, 2, 2), ==, 500);
    g_assert_cmpuint (ecfs_capacity (endless, 2, 2, 1), >=, UINT64_C (1) << 59);
}

/* Two in a zone of small endpoints: zones come first, so their end is the end. */
static void test_zones_first (void)
{
    const EcfsRoom rooms[] = {{.zone = 0, .device = 0, .free_bytes = 10000},
                              {.zone = 0, .device = 1, .free_bytes = 10000},
                              {.zone = 1, .device = 2, .free_bytes = 10000},
                              {.zone = 2, .device = 3, .free_bytes = 10000}};
    g_assert_cmpuint (ecfs_capacity (rooms, 4, 3, 1), ==, 10000);
}

int main (int argc, char **argv)
{
    /* The bounds hold for nearly all random worlds: the same in each run, but where a later --seed asks for others. */
    g_autoptr (GPtrArray) words = g_ptr_array_new ();
    g_ptr_array_add (words, argv[0]);
    g_ptr_array_add (words, (char *) "--seed=R02S0123456789abcdef0123456789abcdef");
    for (int i = 1; i <= argc; i++) /* with the NULL at the end */
        g_ptr_array_add (words, argv[i]);
    char **given = (char **) words->pdata;
    argc++;
    g_test_init (&argc, &given, NULL);
    g_test_add_func ("/capacity/edges", test_edges);
    g_test_add_func ("/capacity/zones-come-before-room", test_zones_first);
    g_test_add_func ("/capacity/is-the-largest-x-of-the-formula", test_formula);
    g_test_add_data_func ("/capacity/is-what-counting-every-placement-gives", NULL, test_counted);
    g_test_add_data_func ("/capacity/counts-shared-file-systems-once", "shared", test_counted);
    g_test_add_data_func ("/capacity/foretells-what-placement-fills", "", test_filling);
    g_test_add_data_func ("/capacity/foretells-it-with-zones", "z", test_filling);
    g_test_add_data_func ("/capacity/foretells-it-with-shared-file-systems", "d", test_filling);
    g_test_add_data_func ("/capacity/foretells-it-with-zones-across-file-systems", "zd", test_filling);
    return g_test_run ();
}
