// A module of Python, of which `clang.rs` makes many, which differ by what the compiler is told:
// NAME, NUMBER, BYTES of its own memory, and their ALIGNMENT. It declares what it uses of CPython.

typedef struct _object PyObject;
struct method {
    const char *name;
    PyObject *(*function)(PyObject *, PyObject *);
    int flags;
    const char *doc;
};
struct definition {
    long head[5];
    const char *name, *doc;
    long size;
    struct method *methods;
    void *slots, *traverse, *clear, *free;
};
extern PyObject *PyExc_ValueError;
void PyErr_SetString(PyObject *, const char *);
long PyLong_AsLong(PyObject *);
PyObject *PyLong_FromLong(long);
PyObject *PyModule_Create2(struct definition *, int);
PyObject *PyUnicode_FromString(const char *);

#define TEXT_OF(name) #name
#define TEXT(name) TEXT_OF(name)
#define INIT_OF(name) PyInit_##name
#define INIT(name) INIT_OF(name)
#define ONE_ARGUMENT 8
#define API_VERSION 1013

// All modules export these names.
long number(void) { return NUMBER; }
_Alignas(ALIGNMENT) char room[BYTES];

static const char *const words[] = {"zero", "one", "two"};
static long begun;

__attribute__((constructor)) static void begin(void) { begun += 100; }

static long twice(long x) { return 2 * x; }
static long squared(long x) { return x * x; }
static long (*const ways[])(long) = {twice, squared};

static PyObject *word(PyObject *self, PyObject *argument) {
    long place = PyLong_AsLong(argument);
    if (place < 0 || place > 2) {
        PyErr_SetString(PyExc_ValueError, "there are three");
        return 0;
    }
    return PyUnicode_FromString(words[place]);
}

// Returns its number and what the constructor left, after it has used its memory.
static PyObject *compute(PyObject *self, PyObject *argument) {
    long (*volatile of_module)(void) = number;
    volatile char *bytes = room;
    long x = PyLong_AsLong(argument), places = 0;
    for (long place = 0; place < BYTES; place += 4096) {
        places += bytes[place] == 0;
        bytes[place] = 1;
    }
    if ((unsigned long)bytes % ALIGNMENT || places != (BYTES + 4095) / 4096) return PyLong_FromLong(-1);
    return PyLong_FromLong(of_module() + begun + ways[x & 1](x));
}

static struct method methods[] = {{"word", word, ONE_ARGUMENT, 0}, {"compute", compute, ONE_ARGUMENT, 0}, {0}};
static struct definition definition = {{1}, TEXT(NAME), 0, -1, methods};

PyObject *INIT(NAME)(void) { return PyModule_Create2(&definition, API_VERSION); }
