import { Agent, RetryAgent, request } from 'undici';
import { serve } from './lines.mjs';

const dispatcher = new RetryAgent(new Agent(), { maxRetries: 8, methods: ['POST'] });

serve(async (url, headers, body) => {
  const answer = await request(url, { method: 'POST', dispatcher, headers, body });
  return [answer.statusCode, await answer.body.text()];
});
