// Streams and events.

#include <ctime>

#include "standin.h"

using namespace standin;

namespace {

int perform(Stream *stream)
{
    Work work = std::move(stream->queue.front());
    stream->queue.pop_front();
    int code = work.what ? work.what() : SUCCESS;
    if (code)
        state.lost = code;
    return code;
}

bool ready(const Stream *stream)
{
    if (stream->queue.empty())
        return false;
    const Work &next = stream->queue.front();
    return !next.awaited || next.awaited->done >= next.until;
}

} // namespace

// Works on other streams too, but only as far as this one waits for them.
int standin::finish(Stream *stream)
{
    while (!stream->queue.empty()) {
        Stream *next = ready(stream) ? stream : nullptr;
        for (Stream *other : state.streams)
            next = next ? next : ready(other) ? other : nullptr;
        if (!next)
            return state.lost = fail(LAUNCH_FAILED, "streams wait for each other");
        if (int code = perform(next))
            return code;
    }
    return SUCCESS;
}

int standin::finish_all()
{
    for (Stream *stream : state.streams)
        if (int code = finish(stream))
            return code;
    return check_ends();
}

int standin::submit(Stream *stream, std::function<int()> what)
{
    if (!stream) {
        if (int code = finish_all())
            return code;
        int code = what();
        if (code)
            state.lost = code;
        return code;
    }
    if (!state.streams.count(stream))
        return fail(INVALID_HANDLE, "no such stream");
    stream->queue.push_back(Work{std::move(what)});
    return state.deferred ? SUCCESS : finish(stream);
}

API int cuStreamCreate(Stream **stream, unsigned)
{
    IN_CONTEXT
    *stream = new Stream;
    state.streams.insert(*stream);
    return SUCCESS;
}

API int cuStreamDestroy_v2(Stream *stream)
{
    std::lock_guard<std::recursive_mutex> guard(state.mutex);
    int code = state.lost ? state.lost : finish(stream);
    state.streams.erase(stream);
    delete stream;
    return code;
}

API int cuStreamSynchronize(Stream *stream)
{
    IN_CONTEXT
    TRY(injected("sync"))
    state.counters["syncs"] += 1;
    return stream ? finish(stream) : finish_all();
}

API int cuStreamQuery(Stream *stream)
{
    IN_CONTEXT
    return !stream || stream->queue.empty() ? SUCCESS : NOT_READY;
}

API int cuStreamWaitEvent(Stream *stream, Event *event, unsigned)
{
    IN_CONTEXT
    stream->queue.push_back(Work{nullptr, event, event->recorded});
    return state.deferred ? SUCCESS : finish(stream);
}

API int cuEventCreate(Event **event, unsigned) { IN_CONTEXT *event = new Event; return SUCCESS; }
// Work that is put off may still refer to it.
API int cuEventDestroy_v2(Event *) { return SUCCESS; }

API int cuEventRecord(Event *event, Stream *stream)
{
    IN_CONTEXT
    uint64_t number = ++event->recorded;
    return submit(stream, [=] {
        event->done = number;
        timespec now;
        clock_gettime(CLOCK_MONOTONIC, &now);
        event->time = double(now.tv_sec) * 1e3 + double(now.tv_nsec) / 1e6;
        return int(SUCCESS);
    });
}

API int cuEventQuery(Event *event) { IN_CONTEXT return event->done == event->recorded ? SUCCESS : NOT_READY; }

API int cuEventSynchronize(Event *event)
{
    IN_CONTEXT
    TRY(injected("sync"))
    state.counters["syncs"] += 1;
    while (event->done < event->recorded) {
        Stream *next = nullptr;
        for (Stream *stream : state.streams)
            next = next ? next : ready(stream) ? stream : nullptr;
        if (!next)
            return state.lost = fail(LAUNCH_FAILED, "an event that nothing records");
        TRY(perform(next))
    }
    return SUCCESS;
}

API int cuEventElapsedTime_v2(float *milliseconds, Event *first, Event *last)
{
    *milliseconds = float(last->time - first->time);
    return first->done && last->done ? SUCCESS : NOT_READY;
}
