// A client process of BullMQ: the same jobs, said the same way, as client.go.
import { createRequire } from 'node:module'
import { createInterface } from 'node:readline'
import IORedis from 'ioredis'
import { Queue, Worker } from 'bullmq'

const kind = 'pay_timeout'
const chunk = 100_000

const queueName = i => 'order-close' + i // no colon in a queue's name
const idOf = i => `order_${String(i).padStart(10, '0')}-${kind}` // nor in an id
const indexOf = id => Number(id.slice(6, 16))

function scatter(i) {
  let h = (i + 0x9e3779b9) >>> 0
  h = Math.imul(h ^ (h >>> 16), 0x85ebca6b) >>> 0
  h = Math.imul(h ^ (h >>> 13), 0xc2b2ae35) >>> 0
  return (h ^ (h >>> 16)) >>> 0
}

function offsetMs(plan, i) {
  const due = plan.from_ms + Math.trunc(i * plan.each_us / 1000)
  return plan.spread_ms > 0 ? due + scatter(i) % plan.spread_ms : due
}

const say = text => process.stdout.write(text + '\n')
const sleep = ms => new Promise(done => setTimeout(done, ms))
const connect = plan => {
  const [host, port] = plan.addr.split(':')
  return new IORedis({ host, port: Number(port), maxRetriesPerRequest: null })
}

async function left(plan) {
  const connection = connect(plan)
  const queue = new Queue(queueName(0), { connection })
  const counts = await queue.getJobCounts('waiting', 'active', 'delayed', 'prioritized', 'failed', 'completed', 'paused')
  await queue.close()
  connection.disconnect()
  return Object.values(counts).reduce((a, b) => a + b, 0)
}

async function schedule(plan, go) {
  const connection = connect(plan)
  const queue = new Queue(queueName(0), { connection })
  await queue.waitUntilReady()
  const data = plan.body > 0 ? { body: 'b'.repeat(plan.body) } : {}
  const result = { seconds: 0, cpu: 0 }
  await go()
  for (let done = 0; done < plan.tasks; done += chunk) {
    const n = Math.min(chunk, plan.tasks - done)
    const jobs = Array.from({ length: n }, (_, k) => job(plan, plan.first + done + k, data))
    const cpu = process.cpuUsage()
    const began = performance.now()
    await send(plan, queue, jobs, plan.first + done)
    result.seconds += (performance.now() - began) / 1000
    result.cpu += seconds(process.cpuUsage(cpu))
  }
  await queue.close()
  connection.disconnect()
  return { ...result, left: await left(plan) }
}

// job is due at an instant, or so long after the call; BullMQ takes delays only.
function job(plan, i, data) {
  const offset = offsetMs(plan, i)
  const delay = () => plan.after ? offset : Math.max(offset - Date.now(), 0)
  return { name: kind, data, opts: () => ({ jobId: idOf(i), delay: delay(), removeOnComplete: true }) }
}

async function send(plan, queue, jobs, first) {
  const size = Math.max(plan.batch, 1)
  let next = 0
  const caller = async () => {
    while (next < jobs.length) {
      const start = next
      next += size
      if (plan.lead_ms > 0) {
        const wait = plan.from_ms - plan.lead_ms + (first + start) * plan.each_us / 1000 - Date.now()
        if (wait > 0) await sleep(wait)
      }
      if (plan.batch === 0) {
        const { name, data, opts } = jobs[start]
        await queue.add(name, data, opts())
      } else {
        await queue.addBulk(jobs.slice(start, start + size).map(j => ({ ...j, opts: j.opts() })))
      }
    }
  }
  await Promise.all(Array.from({ length: plan.callers }, caller))
}

async function work(plan, go, ended) {
  const tasks = []
  const drift = []
  let first = 0
  let last = 0
  const handle = async job => {
    const now = performance.timeOrigin + performance.now()
    if (first === 0) first = now
    last = now
    const i = indexOf(job.id)
    tasks.push(i)
    drift.push(Math.floor((now - offsetMs(plan, i)) * 1000))
  }
  await go()
  const cpu = process.cpuUsage()
  const connection = connect(plan)
  const workers = Array.from({ length: plan.queues }, (_, q) =>
    new Worker(queueName(q), handle, { connection, concurrency: plan.slots }))
  for (const worker of workers) worker.on('error', () => {})
  let said = 0
  const saying = setInterval(() => {
    if (tasks.length !== said) say('seen ' + (said = tasks.length))
  }, 50)
  await ended
  clearInterval(saying)
  await Promise.all(workers.map(worker => worker.close()))
  connection.disconnect()
  return {
    seconds: (last - first) / 1000, cpu: seconds(process.cpuUsage(cpu)), tasks, drift_us: drift, left: await left(plan)
  }
}

const seconds = cpu => (cpu.user + cpu.system) / 1e6

async function main() {
  const lines = createInterface({ input: process.stdin })
  const ended = new Promise(done => lines.once('close', done))
  const queue = []
  let waiting = null
  lines.on('line', line => {
    if (waiting) waiting(line)
    else queue.push(line)
  })
  const line = () => queue.length > 0 ? Promise.resolve(queue.shift()) : new Promise(done => { waiting = done })
  const plan = JSON.parse(await line())
  const go = async () => {
    say('ready')
    plan.from_ms = Number((await line()).split(' ')[1])
  }
  const jobs = { schedule, work, left: async (p, g) => { await g(); return { left: await left(p) } } }
  let result
  try {
    result = await jobs[plan.job](plan, go, ended)
  } catch (err) {
    result = { err: String(err) }
  }
  process.stdout.write('result ' + JSON.stringify(result) + '\n', () => process.exit(0))
}

if (process.argv.includes('--version')) {
  const require = createRequire(import.meta.url)
  const version = name => require(`${name}/package.json`).version
  say(`bullmq ${version('bullmq')}, ioredis ${version('ioredis')}, node ${process.version}`)
} else {
  await main()
}
