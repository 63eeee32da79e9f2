/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gpu_exec_streams.inl - the executor's streams and events
 *
 * Work waits in its stream until somebody waits for it, and then streams take turns
 * by chance: what is not ordered by a stream or an event comes in the wrong order
 * sooner or later, and memory of the host is read as late as can be.
 */
namespace {

struct event {
	uint64_t asked, done;		/* records so far, and those that happened */
	double ms;
};
std::set<event *> events;

/* An operation that returns false has to wait for an event. */
typedef std::deque<std::function<bool()>> stream_queue;
std::map<void *, stream_queue> streams = { { nullptr, {} } };

/* One operation of one stream; false: nothing can go on. */
bool step()
{
	std::vector<stream_queue *> all;

	for (auto &s : streams)
		all.push_back(&s.second);
	for (unsigned i : shuffled((unsigned)all.size()))
		if (!all[i]->empty() && all[i]->front()()) {
			all[i]->pop_front();
			return true;
		}
	return false;
}

/* Until it is so; a device that has died does nothing more. */
template <typename F> int run_until(F so)
{
	while (!so() && !sticky)
		if (!step())
			std::abort();	/* streams that wait for each other */
	if (sticky)
		for (auto &s : streams)
			s.second.clear();
	return sticky;
}

int finish()
{
	return run_until([] {
		return std::all_of(streams.begin(), streams.end(), [](auto &s) {
			return s.second.empty();
		});
	});
}

void later(void *stream, std::function<bool()> operation)
{
	streams[stream].push_back(std::move(operation));
}

}
