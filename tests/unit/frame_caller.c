/* Calls `function` from code that may be unloaded. */
unsigned frame_call(unsigned (*function)(void));
unsigned frame_call(unsigned (*function)(void)) {
    volatile unsigned found = function(); /* no tail call */
    return found;
}
